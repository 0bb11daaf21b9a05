/* Facts: settings, machine, software, modules, and what of the moment matters (group `now`). */
#include "facts/facts.h"

#include "base/clock.h"
#include "base/fail.h"
#include "describe/program.h"
#include "evidence/sources.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

/* Settings of the network stack and of scheduling that change what is measured. */
static const char *const sysctls[] = {
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.core.optmem_max",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.dev_weight",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.somaxconn",
    "net.core.rps_sock_flow_entries",
    "net.core.gro_normal_batch",
    "net.core.bpf_jit_enable",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_mem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.udp_wmem_min",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_dsack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_early_retrans",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_low_latency",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_no_pmtu_disc",
    "net.ipv4.ipfrag_high_thresh",
    "net.ipv4.ipfrag_time",
    "net.ipv4.neigh.default.gc_thresh1",
    "net.ipv4.neigh.default.gc_thresh2",
    "net.ipv4.neigh.default.gc_thresh3",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.conf.all.arp_announce",
    "net.netfilter.nf_conntrack_max",
    "kernel.sched_autogroup_enabled",
    "kernel.sched_rt_runtime_us",
    "kernel.timer_migration",
    "kernel.watchdog",
    "kernel.nmi_watchdog",
    "kernel.perf_event_paranoid",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
    "vm.nr_hugepages",
};

void facts_sysctl(struct facts *facts)
{
    for (size_t i = 0; i < sizeof sysctls / sizeof sysctls[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "proc/sys/%s", sysctls[i]);
        for (char *dot = path + strlen("proc/sys/"); (dot = strchr(dot, '.'));)
            *dot = '/';
        fact_file(facts, sysctls[i], "%s", path);
    }
}

void facts_machine(struct facts *facts)
{
    static const char *const files[] = {"sys_vendor", "product_name", "board_name", "bios_version", "bios_date"};
    struct text text = {0};
    struct word line, name, value;
    for (size_t i = 0; i < 5; i++)
        fact_file(facts, files[i], "sys/class/dmi/id/%s", files[i]);
    fact_file(facts, "hypervisor", "sys/hypervisor/type");
    fact_file(facts, "transparent_hugepage", "sys/kernel/mm/transparent_hugepage/enabled");
    source_read_file(facts->root, "proc/meminfo", &text);
    const char *at = text_string(&text);
    while (line_next(&at, &line))
        if (word_next(&line, &name) && word_is(name, "MemTotal") && word_next(&line, &value))
            fact_number(facts, (double)word_unsigned(value) * 1024, "memory_bytes");
    text_free(&text);
}

enum { PROGRAM_LIMIT_MS = 5000, PROGRAM_OUTPUT_BYTES = 4096 };

static void program_exec(int output, const char *const *words)
{
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
        _exit(127);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(words[0], (char *const *)words);
    _exit(127);
}

/* First line that a program prints, within a limit: a launcher that hangs must not hold the job. Returns 0, ETIMEDOUT,
 * or ENOENT where there is no such program or it says nothing. */
static int program_first_line(const char *const *words, char line[SYSFS_LINE_BYTES])
{
    char output[PROGRAM_OUTPUT_BYTES];
    size_t length = 0;
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC))
        return errno;
    pid_t child = fork();
    if (child == 0)
        program_exec(ends[1], words);
    close(ends[1]);
    uint64_t deadline = clock_now_ns() + (uint64_t)PROGRAM_LIMIT_MS * 1000000;
    while (child > 0 && length < sizeof output - 1) {
        struct pollfd poller = {.fd = ends[0], .events = POLLIN};
        if (poll(&poller, 1, clock_remaining_ms(deadline)) <= 0)
            break;
        ssize_t got = read(ends[0], output + length, sizeof output - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    close(ends[0]);
    if (child <= 0)
        return ENOENT;
    /* It may have closed its output and stayed. */
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (!clock_remaining_ms(deadline))
            kill(-child, SIGKILL);
        poll(NULL, 0, 1);
    }
    output[length] = '\0';
    snprintf(line, SYSFS_LINE_BYTES, "%.*s", (int)strcspn(output, "\n"), output);
    if (WIFSIGNALED(status) && !clock_remaining_ms(deadline))
        return ETIMEDOUT;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && line[0] ? 0 : ENOENT;
}

static void software_versions(struct facts *facts)
{
    static const struct {
        const char *name;
        const char *words[4];
    } programs[] = {
        {"slurm", {"srun", "--version", NULL}},    {"pbs", {"qstat", "--version", NULL}},
        {"mpirun", {"mpirun", "--version", NULL}}, {"pmix", {"pmix_info", "--version", NULL}},
        {"ucx", {"ucx_info", "-v", NULL}},         {"ofed", {"ofed_info", "-s", NULL}},
    };
    char line[SYSFS_LINE_BYTES];
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        switch (program_first_line(programs[i].words, line)) {
        case 0:
            fact_text(facts, line, "%s", programs[i].name);
            break;
        case ETIMEDOUT: /* that nothing is known of it is not that it is gone */
            snprintf(line, sizeof line, "software.%s", programs[i].name);
            facts_unavailable(facts, line, "ETIMEDOUT");
            break;
        default:
            break;
        }
}

static const char *libc_version(void)
{
#ifdef __GLIBC__
    return gnu_get_libc_version();
#else
    return "not glibc"; /* musl has a version, but no way to ask for it */
#endif
}

void facts_software(struct facts *facts)
{
    struct text release = {0};
    struct word line;
    fact_file(facts, "tuned_profile", "etc/tuned/active_profile");
    source_read_file(facts->root, "etc/os-release", &release);
    const char *at = text_string(&release);
    while (line_next(&at, &line)) {
        char name[128];
        if (!word_starts(line, "PRETTY_NAME="))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)line.length - 12, line.at + 12);
        char *start = name + (name[0] == '"');
        start[strcspn(start, "\"")] = '\0';
        fact_text(facts, start, "distribution");
    }
    text_free(&release);
    if (facts->root[0])
        return;
    fact_text(facts, libc_version(), "libc");
    fact_text(facts, HPCQ_VERSION, "hpcq");
    software_versions(facts);
}

void facts_module(struct facts *facts)
{
    struct text text = {0};
    struct word line, name;
    int error = source_read_file(facts->root, "proc/modules", &text);
    if (error)
        facts_unavailable(facts, "module", fail_errno_name(error));
    struct names names = {0};
    const char *at = text_string(&text);
    while (line_next(&at, &line)) {
        char module[128];
        if (!word_next(&line, &name))
            continue;
        snprintf(module, sizeof module, "%.*s", (int)name.length, name.at);
        names_add(&names, module);
    }
    text_free(&text);
    /* One fact a module: what was loaded or left out shows as one line of difference. */
    for (size_t i = 0; i < names.count; i++) {
        char version[SYSFS_LINE_BYTES] = "";
        sysfs_line(facts->root, version, "sys/module/%s/version", names.list[i]);
        fact_text(facts, version[0] ? version : "loaded", "%s", names.list[i]);
    }
    names_free(&names);
}

/* Jobs of the scheduler that have a control group here: slurmstepd.scope/job_N, slurm/uid_U/job_N,
 * pbs_jobs.service/jobid. */
static void now_jobs(struct facts *facts)
{
    static const char *const folders[] = {"sys/fs/cgroup/system.slice/slurmstepd.scope", "sys/fs/cgroup/cpuset/slurm",
                                          "sys/fs/cgroup/cpu,cpuacct/slurm", "sys/fs/cgroup/memory/slurm",
                                          "sys/fs/cgroup/pbs_jobs.service/jobid"};
    struct text jobs = {0};
    for (size_t folder = 0; folder < 5 && !jobs.length; folder++) {
        struct names outer = sysfs_list(facts->root, "%s", folders[folder]);
        for (size_t i = 0; i < outer.count; i++) {
            if (!strncmp(outer.list[i], "job_", 4) || folder == 4) {
                if (sysfs_exists(facts->root, "%s/%s/cgroup.procs", folders[folder], outer.list[i]))
                    text_print(&jobs, "%s%s", jobs.length ? " " : "", outer.list[i]);
                continue;
            }
            struct names inner = sysfs_list(facts->root, "%s/%s", folders[folder], outer.list[i]);
            for (size_t j = 0; j < inner.count; j++)
                if (!strncmp(inner.list[j], "job_", 4))
                    text_print(&jobs, "%s%s", jobs.length ? " " : "", inner.list[j]);
            names_free(&inner);
        }
        names_free(&outer);
    }
    fact_text(facts, text_string(&jobs), "jobs");
    text_free(&jobs);
}

/* Processes of users other than us and the system's (below 1000, useradd's usual first). */
static void now_processes(struct facts *facts)
{
    struct names entries = sysfs_list(facts->root, "proc");
    double others = 0;
    for (size_t i = 0; i < entries.count; i++) {
        struct stat status;
        char path[64];
        if (!isdigit((unsigned char)entries.list[i][0]))
            continue;
        snprintf(path, sizeof path, "/proc/%.20s", entries.list[i]);
        if (!stat(path, &status) && status.st_uid >= 1000 && status.st_uid != 65534 && status.st_uid != geteuid())
            others++;
    }
    fact_number(facts, others, "processes_of_others_count");
    names_free(&entries);
}

void facts_now(struct facts *facts)
{
    struct timex clock = {.modes = 0};
    char line[SYSFS_LINE_BYTES];
    if (sysfs_line(facts->root, line, "proc/loadavg"))
        fact_number(facts, strtod(line, NULL), "load_1min");
    facts_neighbour(facts);
    now_jobs(facts);
    if (facts->root[0])
        return;
    now_processes(facts);
    facts_memory_copy(facts);
    if (adjtimex(&clock) >= 0)
        fact_text(facts, clock.status & STA_UNSYNC ? "false" : "true", "clock_synchronised");
}
