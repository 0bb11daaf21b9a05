/* See rank.h. */
#include "programs/rank.h"

#include "base/signals.h"
#include "describe/arguments.h"
#include "engine/result.h"
#include "programs/kernel_program.h"
#include "programs/rank_reports.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TURN_MS = 50, HOST_BYTES = 256, RANK_UNKNOWN = -1, RANKS_PER_NODE_MAX = 1024 };
static const double report_within_s = 10, look_every_s = 1;

extern char **environ;

struct rank {
    struct run run;
    struct rank_reports reports;
    const char *interface, *report_prefix, *bind;
    int number, count, per_node; /* ranks of a node follow each other; the first of them has the node's evidence */
};

static int environment_number(const char *const *names)
{
    for (size_t i = 0; names[i]; i++) {
        const char *value = getenv(names[i]);
        char *end = NULL;
        long number = value ? strtol(value, &end, 10) : -1;
        if (value && end != value && !*end && number >= 0 && number < 1000000)
            return (int)number;
    }
    return RANK_UNKNOWN;
}

/* Launchers tell each process its rank. Slurm's own name comes last: other launchers inherit it in a Slurm job. */
static bool rank_known(struct rank *rank)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK",    "PMI_RANK",
                                        "MV2_COMM_WORLD_RANK",  "SLURM_PROCID", NULL};
    rank->number = rank->count == 1 ? 0 : environment_number(names);
    if (rank->number == RANK_UNKNOWN)
        return fail(&rank->run.failure, EXIT_USAGE,
                    "rank: found none in the environment: allowed: a launcher that sets OMPI_COMM_WORLD_RANK, "
                    "PMIX_RANK, PMI_RANK, MV2_COMM_WORLD_RANK or SLURM_PROCID");
    return rank->number < rank->count ||
           fail(&rank->run.failure, EXIT_USAGE, "rank %d: allowed with %d nodes: 0 to %d, %d per node", rank->number,
                rank->count / rank->per_node, rank->count - 1, rank->per_node);
}

static bool rank_arguments(struct rank *rank, int argc, char **argv)
{
    struct run *run = &rank->run;
    const char *programs = NULL, *nodes = NULL, *evidence = NULL, *raw = NULL, *per_node = "1";
    const struct flag flags[] = {
        {"interface", &rank->interface},         {"programs-file", &programs}, {"nodes", &nodes},
        {"report-prefix", &rank->report_prefix}, {"evidence-file", &evidence}, {"raw-dir", &raw},
        {"ranks-per-node", &per_node},           {"bind", &rank->bind}};
    run->failure.state = "rank";
    if (!arguments_parse(argc, argv, 2, flags, ROW_COUNT(flags), &run->kernel->options, run->options, &run->failure))
        return false;
    if (!nodes || !*nodes || !rank->report_prefix)
        return fail(&run->failure, EXIT_USAGE, "%s: found nothing: allowed: %s",
                    rank->report_prefix ? "nodes" : "report-prefix",
                    rank->report_prefix ? "names, by comma" : "the beginning of a file's name");
    if (rank->bind && strcmp(rank->bind, "numa") != 0)
        return fail(&run->failure, EXIT_USAGE, "bind: found %.64s: allowed: numa", rank->bind);
    rank->count = 1;
    for (const char *comma = nodes; (comma = strchr(comma, ',')); comma++)
        rank->count++;
    rank->per_node = atoi(per_node);
    if (rank->per_node < 1 || rank->per_node > RANKS_PER_NODE_MAX)
        return fail(&run->failure, EXIT_USAGE, "ranks-per-node: %s: allowed: 1 to %d", per_node, RANKS_PER_NODE_MAX);
    rank->count *= rank->per_node;
    if (rank->interface && !*rank->interface)
        rank->interface = NULL;
    run->programs_path = programs;
    run->keep.evidence_path = evidence;
    run->keep.raw_folder = raw;
    return rank_known(rank);
}

/* The ranks of a node take its NUMA nodes in turn; the program inherits CPUs and memory. */
static void rank_bind(struct rank *rank)
{
    struct program_options *options = rank->run.options;
    int count = rank->bind ? run_numa_node_count() : 0;
    if (count > 0)
        options->common.client_numa_index = options->common.server_numa_index = rank->number % rank->per_node % count;
    else if (rank->bind)
        run_warn(&rank->run, "option_not_granted", "bind: this system reports no NUMA nodes");
}

static bool rank_open(struct rank *rank)
{
    struct run *run = &rank->run;
    struct program_state *state = run->state;
    const struct program_options *options = run->options;
    char host[HOST_BYTES] = "";
    if (!foreign_read(run->programs_path, (unsigned long)options->test_no, &state->foreign, &run->failure))
        return false;
    if (!foreign_folder(&state->foreign, &run->failure))
        return false;
    if (rank->interface && !address_of_interface(rank->interface, AF_UNSPEC, &run->local, &run->failure))
        return false;
    run->evidence = evidence_new(&run->local, rank->interface);
    if (run->is_server) /* the first rank asks for all */
        words_free(&state->foreign.version);
    gethostname(host, sizeof host - 1);
    run_grant_text(run, "host_name", host);
    rank_bind(rank);
    return run_pin(run);
}

/* True while the program may go on: its time is not over, nobody ended us, and no other rank has failed. */
static bool rank_may_go_on(struct rank *rank, uint64_t *look_ns)
{
    struct run *run = &rank->run;
    struct program_state *state = run->state;
    uint64_t now_ns = clock_now_ns();
    if (now_ns - state->child.start_ns >= clock_ns_from_s(state->foreign.limit_s)) {
        state->child.timed_out = true;
        return false;
    }
    if (rank->count > 1 && now_ns >= *look_ns) {
        *look_ns = now_ns + clock_ns_from_s(look_every_s);
        if (!run->is_server)
            rank_reports_take(&rank->reports, run);
        else if (rank_reports_told_to_end(rank->report_prefix))
            return false;
    }
    return !signals_stop() && !rank->reports.failure[0];
}

static void rank_play(struct rank *rank)
{
    struct run *run = &rank->run;
    struct program_state *state = run->state;
    uint64_t look_ns = clock_now_ns() + clock_ns_from_s(look_every_s);
    foreign_fill(&state->foreign.client, &(struct places){0}, &state->command);
    run->phase = PHASE_MEASURE;
    run_start(run);
    getrusage(RUSAGE_SELF, &run->usage_start);
    run->phase_start_ns = run->phase_end_ns = clock_now_ns();
    if (!child_start(&state->child, &state->command, state->foreign.folder, &run->failure))
        return;
    while (!child_turn(&state->child, TURN_MS) && rank_may_go_on(rank, &look_ns)) {
    }
    if (signals_stop() && !state->child.ended)
        kill(-state->child.pid, SIGKILL); /* a launcher that ended us waits a second, no more */
    child_end(&state->child);
    foreign_collect(&state->foreign, &state->child);
    run->phase_end_ns = run->usage_end_ns = clock_now_ns();
    getrusage(RUSAGE_SELF, &run->usage_end);
    run_finish(run);
    if (signals_stop())
        fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
    else if (!rank->reports.failure[0])
        foreign_succeeded(&state->foreign, &state->child, &run->failure);
}

static void rank_wait(struct rank *rank)
{
    uint64_t deadline_ns = clock_now_ns() + clock_ns_from_s(signals_stop() ? 0 : report_within_s);
    rank_reports_take(&rank->reports, &rank->run);
    while (rank->reports.missing_count && !rank->reports.failure[0] && !rank->run.failure.failed &&
           clock_now_ns() < deadline_ns && !signals_stop()) {
        poll(NULL, 0, TURN_MS);
        rank_reports_take(&rank->reports, &rank->run);
    }
}

/* What the first rank says of all: the first reason is that of the rank which failed, not of those that it took along.
 */
static void rank_judge(struct rank *rank)
{
    struct run *run = &rank->run;
    int missing = rank_reports_missing(&rank->reports);
    bool ended = run->failure.failed && signals_stop();
    if (rank->reports.failure[0] && (!run->failure.failed || ended)) {
        run->failure.failed = false;
        fail(&run->failure, EXIT_PEER, "%s", rank->reports.failure);
    }
    if (!run->failure.failed && missing)
        run_invalid(run, "rank %d did not report within %g s of the end: no evidence of its node", missing,
                    report_within_s);
    if (rank_reports_same_host(run))
        run_warn(run, "same_node", "two ranks ran on one node: no network was measured");
}

static int rank_first(struct rank *rank)
{
    struct run *run = &rank->run;
    if (run->failure.failed)
        rank_reports_end_all(&rank->reports);
    rank_wait(rank);
    rank_judge(rank);
    if (run->failure.failed)
        rank_reports_end_all(&rank->reports);
    run->kernel->close(run);
    return result_print(run);
}

/* Ranks end with 0 whatever happened to their program: a launcher that sees a failure ends the first rank too. */
static int rank_other(struct rank *rank)
{
    struct run *run = &rank->run;
    if (run->failure.failed)
        fail_print(&run->failure);
    bool written = rank_report_write(run, rank->report_prefix, rank->number, &run->failure);
    run->kernel->close(run);
    if (!written)
        fail_print(&run->failure);
    return written ? EXIT_MEASURED : (int)run->failure.exit_code;
}

int rank_main(const struct program *program, int argc, char **argv)
{
    struct rank rank = {.number = RANK_UNKNOWN, .per_node = 1};
    struct run *run = &rank.run;
    signals_install();
    run_begin(run, program, &kernel_program, false);
    run->failure.state = "rank";
    bool ok = rank_arguments(&rank, argc, argv);
    if (!ok && rank.number != 0) { /* nobody knows who would print the line */
        fail_print(&run->failure);
        run_end(run);
        return (int)run->failure.exit_code;
    }
    run->is_server = rank.number > 0;
    rank_reports_begin(&rank.reports, rank.report_prefix, run->is_server ? 1 : rank.count, rank.per_node);
    if (ok && rank_open(&rank)) {
        run->failure.state = "program";
        rank_play(&rank);
    }
    int code = run->is_server ? rank_other(&rank) : rank_first(&rank);
    rank_reports_end(&rank.reports);
    run_end(run);
    return code;
}
