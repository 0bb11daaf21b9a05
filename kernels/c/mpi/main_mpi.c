/* hpcq-mpi: the MPI kernels, under any launcher: two ranks, or a tournament of many. */
#include "base/signals.h"
#include "describe/arguments.h"
#include "describe/program.h"
#include "engine/result.h"
#include "engine/sweep.h"
#include "facts/facts.h"
#include "mpi/finish.h"
#include "mpi/mpi_nodes.h"
#include "mpi/mpi_run.h"
#include "mpi/mpi_start.h"
#include "mpi/mpi_tournament.h"
#include "mpi/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct kernel *const kernels[] = {
    &kernel_mpi_pingpong,   &kernel_mpi_pingping,        &kernel_mpi_stream, &kernel_mpi_one_sided,
    &kernel_mpi_collective, &kernel_mpi_matrix_multiply, &kernel_mpi_sort,   NULL};

static const struct program program = {
    .name = "hpcq-mpi",
    .kernels = kernels,
    .usage =
        "hpcq-mpi: network measurements over MPI, one JSON line from the first rank, under any launcher\n\n"
        "  mpirun -np 2 hpcq-mpi KERNEL [--interface IF] [--nodes CLIENT,SERVER] [--timeout-s S]\n"
        "                           [--samples-file F] [--evidence-file F] [--raw-dir DIR] [--sizes-done A,B,...]\n"
        "                           [--OPTION VALUE ...]\n"
        "  mpirun -np N hpcq-mpi mpi_collective|mpi_matrix_multiply|mpi_sort [--nodes A,B,...] [the same]\n"
        "  mpirun -np N hpcq-mpi tournament --tournament F --spool F [--interface IF] [--nodes A,B,...]\n"
        "                           [--facts-dir DIR] [--evidence summary|full] [--finish-file F] [--done-file F]\n"
        "  hpcq-mpi facts [--interface IF] [--root DIR]\n"
        "  hpcq-mpi --describe | --version | --help | KERNEL --help\n\n"
        "exit: 0 measured, 1 measured but invalid, 2 usage, 3 peer, 4 system call\n",
};

static bool mpi_arguments(struct run *run, int argc, char **argv, const char **interface)
{
    const char *timeout = NULL, *samples = NULL, *evidence = NULL, *raw = NULL, *nodes = NULL, *sizes_done = NULL;
    const struct flag flags[] = {{"interface", interface}, {"nodes", &nodes}, /* read before: see kernel_main */
                                 {"timeout-s", &timeout},  {"samples-file", &samples}, {"evidence-file", &evidence},
                                 {"raw-dir", &raw},        {"sizes-done", &sizes_done}};
    struct failure *failure = &run->failure;
    struct sweep sweep;
    failure->state = run->kernel->name;
    run->timeout_s = 0;
    if (!arguments_parse(argc, argv, 2, flags, ROW_COUNT(flags), &run->kernel->options, run->options, failure) ||
        (timeout && !arguments_number("timeout-s", timeout, 1, 1e5, &run->timeout_s, failure)))
        return false;
    if (!sweep_sizes(run->kernel, run->options, &sweep, failure))
        return false;
    if (run->timeout_s <= 0)
        run->timeout_s =
            (run_common(run)->warmup_s + run_common(run)->duration_s) * (sweep.count ? (double)sweep.count : 1) + 60;
    run->samples.path = samples;
    run->keep.evidence_path = evidence;
    run->keep.raw_folder = raw;
    run->sizes_done = sizes_done;
    if (*interface && !**interface)
        *interface = NULL;
    return true;
}

static const char *early_argument(int argc, char **argv, const char *flag)
{
    for (int i = 2; i + 1 < argc; i++)
        if (!strcmp(argv[i], flag) && *argv[i + 1])
            return argv[i + 1];
    return NULL;
}

/* A rank whose library did not find its launcher believes that it is alone; launchers tell each how many there are. */
static int ranks_promised(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", NULL};
    for (size_t i = 0; names[i]; i++) {
        const char *value = getenv(names[i]);
        if (value && atoi(value) > 1)
            return atoi(value);
    }
    return 1;
}

static bool mpi_ranks_fit(struct run *run, int size)
{
    int promised = ranks_promised();
    if (size == 1 && promised > 1) {
        fail(&run->failure, EXIT_PEER,
             "each of the %d ranks believes to be alone: this MPI library was not started by "
             "its own launcher",
             promised);
        return fail_hint(&run->failure,
                         "`mpi: launch` of the cluster file: Open MPI needs srun --mpi=pmix or its mpirun, "
                         "MPICH needs srun --mpi=pmi2 or its mpirun; --mpi=list shows what srun has");
    }
    if (!run->kernel->many_ranks && size != 2)
        return fail(&run->failure, EXIT_USAGE, "found %d ranks: allowed: 2", size);
    return true;
}

static int kernel_main(const struct kernel *kernel, int argc, char **argv)
{
    struct run run;
    const char *interface = NULL;
    int rank = 0, size = 0, server_rank = 1, code;
    struct result_out out = {.descriptor = STDOUT_FILENO};
    transport_set(early_argument(argc, argv, "--transport"), early_argument(argc, argv, "--interface"));
    mpi_start(&argc, &argv);
    /* Which rank is the client decides what a run is made of, so it is known before the other arguments. */
    MPI_Comm pair = mpi_nodes_ranked(early_argument(argc, argv, "--nodes"), &server_rank);
    MPI_Comm_rank(pair, &rank);
    MPI_Comm_size(pair, &size);
    signals_install();
    run_begin(&run, &program, kernel, rank != 0);
    run.communicator = &pair;
    run.server_rank = server_rank;
    bool ok = mpi_arguments(&run, argc, argv, &interface);
    if (ok)
        ok = mpi_ranks_fit(&run, size);
    if (ok) {
        alarm((unsigned)run.timeout_s + 1); /* a lost peer must not hold the node: the default action ends us */
        code = mpi_run(&run, interface, rank == 0 ? &out : NULL);
        alarm(0);
    } else {
        code = result_exit_code(&run);
        if (rank == 0)
            result_json(&run, &out.json);
    }
    if (rank == 0) {
        result_say(&run);
        code = result_write(&out, code);
    } else if (run.failure.failed && run.failure.exit_code != EXIT_USAGE) {
        fail_print(&run.failure);
    } else if (!run.failure.failed) {
        code = EXIT_MEASURED; /* whether it counts is the first rank's to say */
    }
    run_end(&run);
    if (pair != MPI_COMM_WORLD)
        MPI_Comm_free(&pair);
    return mpi_finish(code, MPI_FINISH_LIMIT_S);
}

int main(int argc, char **argv)
{
    int code;
    if (program_begin(&program, argc, argv, &code))
        return code;
    const struct kernel *kernel = argc > 1 ? program_kernel(&program, argv[1]) : NULL;
    if (kernel)
        return kernel_main(kernel, argc, argv);
    if (argc > 1 && !strcmp(argv[1], "tournament"))
        return mpi_tournament_main(&program, argc, argv);
    if (argc > 1 && !strcmp(argv[1], "facts"))
        return facts_main(argc, argv);
    fprintf(stderr,
            "error: %s: unknown: allowed: tournament facts mpi_pingpong mpi_pingping mpi_stream "
            "mpi_one_sided mpi_collective mpi_matrix_multiply mpi_sort\n\nhint: hpcq-mpi --help\n",
            argc > 1 ? argv[1] : "no kernel");
    return EXIT_USAGE;
}
