/* See transport.h.
 *
 *   word            Open MPI                       MPICH, UCX                      OFI (MPICH, Intel MPI)
 *   tcp             pml ob1, btl tcp               no shared memory, UCX_TLS tcp   provider tcp
 *   shared_memory   pml ob1, btl vader             UCX_TLS sm                      provider shm
 *   ucx             pml ucx                        netmod ucx                      -
 *   ofi             pml cm, mtl ofi                netmod ofi                      as the library chooses
 *
 * An interface is named to each as it wants it: UCX takes it with the port of its RDMA device, where it has one. Names
 * of devices that the environment has already stay with ucx and ofi: a site knows them better than an interface tells.
 */
#include "mpi/transport.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENVIRONMENT_BYTES = 2048, COMPONENTS_BYTES = 1024 };

const char *const transports[] = {"as_is", "tcp", "shared_memory", "ucx", "ofi", NULL};

enum value { PLAIN, INTERFACE, INTERFACE_KEPT, DEVICES_KEPT }; /* KEPT: only where the environment says nothing */

struct setting {
    enum transport transport;
    enum value kind;
    const char *name, *value;
};

static const struct setting settings[] = {
    {TRANSPORT_TCP, PLAIN, "OMPI_MCA_pml", "ob1"},
    {TRANSPORT_TCP, PLAIN, "OMPI_MCA_btl", "tcp,self"},
    {TRANSPORT_TCP, PLAIN, "OMPI_MCA_osc", "^ucx"},
    {TRANSPORT_TCP, INTERFACE, "OMPI_MCA_btl_tcp_if_include", NULL},
    {TRANSPORT_TCP, PLAIN, "MPIR_CVAR_NOLOCAL", "1"},
    {TRANSPORT_TCP, PLAIN, "UCX_TLS", "tcp,self"},
    {TRANSPORT_TCP, INTERFACE, "UCX_NET_DEVICES", NULL},
    {TRANSPORT_TCP, PLAIN, "FI_PROVIDER", "tcp"},
    {TRANSPORT_TCP, INTERFACE, "FI_TCP_IFACE", NULL},
    {TRANSPORT_TCP, PLAIN, "I_MPI_FABRICS", "ofi"},
    {TRANSPORT_TCP, PLAIN, "I_MPI_OFI_PROVIDER", "tcp"},
    {TRANSPORT_SHARED_MEMORY, PLAIN, "OMPI_MCA_pml", "ob1"},
    {TRANSPORT_SHARED_MEMORY, PLAIN, "OMPI_MCA_btl", "vader,self"},
    {TRANSPORT_SHARED_MEMORY, PLAIN, "OMPI_MCA_osc", "^ucx"},
    {TRANSPORT_SHARED_MEMORY, PLAIN, "MPIR_CVAR_NOLOCAL", "0"},
    {TRANSPORT_SHARED_MEMORY, PLAIN, "UCX_TLS", "sm,self"},
    {TRANSPORT_SHARED_MEMORY, PLAIN, "FI_PROVIDER", "shm"},
    {TRANSPORT_SHARED_MEMORY, PLAIN, "I_MPI_FABRICS", "shm"},
    {TRANSPORT_UCX, PLAIN, "OMPI_MCA_pml", "ucx"},
    {TRANSPORT_UCX, PLAIN, "OMPI_MCA_pml_ucx_tls", "any"},
    {TRANSPORT_UCX, PLAIN, "OMPI_MCA_pml_ucx_devices", "any"},
    {TRANSPORT_UCX, PLAIN, "OMPI_MCA_osc", "ucx"},
    {TRANSPORT_UCX, PLAIN, "MPIR_CVAR_CH4_NETMOD", "ucx"},
    {TRANSPORT_UCX, DEVICES_KEPT, "UCX_NET_DEVICES", NULL},
    {TRANSPORT_OFI, PLAIN, "OMPI_MCA_pml", "cm"},
    {TRANSPORT_OFI, PLAIN, "OMPI_MCA_mtl", "ofi"},
    {TRANSPORT_OFI, PLAIN, "OMPI_MCA_osc", "^ucx"},
    {TRANSPORT_OFI, PLAIN, "MPIR_CVAR_CH4_NETMOD", "ofi"},
    {TRANSPORT_OFI, PLAIN, "I_MPI_FABRICS", "ofi"},
    {TRANSPORT_OFI, INTERFACE_KEPT, "FI_TCP_IFACE", NULL},
    {TRANSPORT_OFI, INTERFACE_KEPT, "FI_SOCKETS_IFACE", NULL},
};

/* What UCX calls the interface: the ports of its RDMA device, and the interface itself for TCP. */
static void ucx_devices(struct text *out, const char *interface)
{
    char folder[128];
    text_print(out, "%s", interface);
    snprintf(folder, sizeof folder, "/sys/class/net/%s/device/infiniband", interface);
    DIR *listing = opendir(folder);
    for (const struct dirent *entry; listing && (entry = readdir(listing));)
        if (entry->d_name[0] != '.')
            text_print(out, ",%s:1", entry->d_name);
    if (listing)
        closedir(listing);
}

void transport_set(const char *word, const char *interface)
{
    for (size_t i = 0; word && i < ROW_COUNT(settings); i++) {
        const struct setting *setting = &settings[i];
        bool keeps = setting->kind == INTERFACE_KEPT || setting->kind == DEVICES_KEPT;
        if (strcmp(word, transports[setting->transport]) || (setting->kind != PLAIN && !interface))
            continue;
        if (setting->kind == DEVICES_KEPT) {
            struct text devices = {0};
            ucx_devices(&devices, interface);
            setenv(setting->name, text_string(&devices), 0);
            text_free(&devices);
        } else {
            setenv(setting->name, setting->kind == PLAIN ? setting->value : interface, !keeps);
        }
    }
}

/* MPICH says which device it was built for, and has no other. */
static bool built_for(const char *version, const char *device)
{
    const char *said = strstr(version, "MPICH Device:");
    return !said || strstr(said, device);
}

/* What the kernel's option says; all MPI kernels have it. */
static enum transport transport_of(const struct run *run)
{
    const struct option_table *table = &run->kernel->options;
    int64_t value = TRANSPORT_AS_IS;
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->rows[i].name, "transport"))
            memcpy(&value, (const char *)run->options + table->rows[i].offset, sizeof value);
    return (enum transport)value;
}

bool transport_fits(struct run *run, const char *mine, const char *first)
{
    enum transport transport = transport_of(run);
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    if (transport == TRANSPORT_SHARED_MEMORY && strcmp(first, mine))
        return fail(&run->failure, EXIT_USAGE, "transport: found shared_memory: allowed between %s and %s: tcp ucx ofi",
                    first, mine);
    if ((transport == TRANSPORT_UCX && !built_for(version, "ch4:ucx")) ||
        (transport == TRANSPORT_OFI && !built_for(version, "ch4:ofi")))
        return fail(&run->failure, EXIT_USAGE, "transport: found %s: this library was built without it",
                    transports[transport]);
    return true;
}

extern char **environ;

static void grant_environment(struct run *run)
{
    /* What steers the choice of transport; what launchers set anew for each job is left out. */
    static const char *const prefixes[] = {"OMPI_MCA_btl", "OMPI_MCA_pml",  "OMPI_MCA_mtl",
                                           "OMPI_MCA_osc", "OMPI_MCA_coll", "OMPI_MCA_mpi_yield_when_idle",
                                           "UCX_",         "MPICH_",        "MPIR_CVAR_",
                                           "MV2_",         "FI_",           "PSM2_",
                                           "PSM3_",        "I_MPI_",        NULL};
    struct text said = {0};
    for (char **entry = environ; *entry && said.length < ENVIRONMENT_BYTES; entry++)
        for (size_t i = 0; prefixes[i]; i++)
            if (!strncmp(*entry, prefixes[i], strlen(prefixes[i])) && !strstr(*entry, "_HOSTNAME="))
                text_print(&said, "%s%.200s", said.length ? " " : "", *entry);
    run_grant_text(run, "mpi_environment", text_string(&said));
    text_free(&said);
}

/* Whether a word stands in a list of words. */
static bool has_word(const struct text *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text_string((struct text *)list); (at = strstr(at, word)); at += length)
        if ((at == list->data || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

/* The parts of the library that this process has loaded. Open MPI closes those that it does not use. */
static void grant_components(struct run *run)
{
    static const char *const beginnings[] = {"mca_pml_",  "mca_btl_", "mca_mtl_",   "libucp", "libuct",
                                             "libfabric", "libpsm",   "libibverbs", NULL};
    struct text said = {0};
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps) && said.length < COMPONENTS_BYTES) {
        char *name = strrchr(line, '/');
        if (!name)
            continue;
        name[1 + strcspn(name + 1, ".\n")] = '\0';
        for (size_t i = 0; beginnings[i]; i++)
            if (!strncmp(name + 1, beginnings[i], strlen(beginnings[i])) && !has_word(&said, name + 1))
                text_print(&said, "%s%s", said.length ? " " : "", name + 1);
    }
    if (maps)
        fclose(maps);
    run_grant_text(run, "mpi_components", text_string(&said));
    text_free(&said);
}

static bool own_socket(const char *inode)
{
    char path[64], target[64], wanted[64];
    DIR *listing = opendir("/proc/self/fd");
    bool found = false;
    snprintf(wanted, sizeof wanted, "socket:[%s]", inode);
    for (const struct dirent *entry; listing && !found && (entry = readdir(listing));) {
        snprintf(path, sizeof path, "/proc/self/fd/%.20s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = !strcmp(target, wanted);
    }
    if (listing)
        closedir(listing);
    return found;
}

static const char *interface_with(const struct ifaddrs *all, uint32_t address)
{
    for (const struct ifaddrs *one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET) {
            struct sockaddr_in local;
            memcpy(&local, one->ifa_addr, sizeof local);
            if (local.sin_addr.s_addr == address)
                return one->ifa_name;
        }
    return "?";
}

/* The interfaces over which this process has TCP connections now: to other ranks, and to its launcher. */
static void grant_connections(struct run *run)
{
    enum { ESTABLISHED = 1 };
    struct text said = {0};
    struct ifaddrs *all = NULL;
    char line[512], inode[32];
    unsigned address = 0, state = 0;
    FILE *sockets = fopen("/proc/self/net/tcp", "re");
    if (getifaddrs(&all))
        all = NULL;
    while (sockets && fgets(line, sizeof line, sockets))
        if (sscanf(line, " %*d: %8x:%*x %*x:%*x %x %*x:%*x %*x:%*x %*x %*d %*d %31s", &address, &state, inode) == 3 &&
            state == ESTABLISHED && own_socket(inode)) {
            const char *name = interface_with(all, (uint32_t)address);
            if (!has_word(&said, name))
                text_print(&said, "%s%s", said.length ? " " : "", name);
        }
    if (sockets)
        fclose(sockets);
    if (all)
        freeifaddrs(all);
    run_grant_text(run, "mpi_tcp_interfaces", text_string(&said));
    text_free(&said);
}

void transport_granted(struct run *run)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "", name[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    const char *pmix = getenv("PMIX_VERSION"), *plugin = getenv("SLURM_MPI_TYPE");
    MPI_Get_library_version(version, &length);
    const char *device = strstr(version, "MPICH Device:");
    if (device) {
        char said[64];
        snprintf(said, sizeof said, "%.*s", (int)strcspn(device + strlen("MPICH Device:"), "\n"),
                 device + strlen("MPICH Device:"));
        run_grant_text(run, "mpi_device", said + strspn(said, " \t"));
    }
    version[strcspn(version, "\n")] = '\0';
    for (char *tab = version; (tab = strchr(tab, '\t'));)
        *tab = ' ';
    run_grant_text(run, "mpi_library_version", version);
    MPI_Get_processor_name(name, &length);
    run_grant_text(run, "mpi_processor_name", name);
    if (pmix) /* set by the PMIx server that started this rank */
        run_grant_text(run, "pmix_version", pmix);
    if (plugin) /* what srun --mpi chose */
        run_grant_text(run, "slurm_mpi_plugin", plugin);
    grant_environment(run);
    grant_components(run);
    grant_connections(run);
}
