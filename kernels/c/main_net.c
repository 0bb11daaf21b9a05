/* hpcq-net: the socket kernels, the server they talk to, and what can be asked of a node. */
#include "describe/arguments.h"
#include "describe/program.h"
#include "engine/client.h"
#include "engine/server.h"
#include "facts/facts.h"
#include "programs/rank.h"
#include "tournament/agent.h"
#include "tournament/conductor.h"

#include <stdio.h>
#include <string.h>

static const struct kernel *const kernels[] = {&kernel_tcp_stream,     &kernel_tcp_pingpong,    &kernel_udp_stream,
                                               &kernel_udp_pingpong,   &kernel_tcp_connect,     &kernel_udp_oneway,
                                               &kernel_udp_dispersion, &kernel_udp_rate_search, &kernel_path_probe,
                                               &kernel_memory_copy,    &kernel_program,         NULL};

static const struct program program = {
    .name = "hpcq-net",
    .kernels = kernels,
    .usage = "hpcq-net: network measurements over sockets, one JSON line each\n\n"
             "  hpcq-net server --interface IF|--bind ADDR [--port N|--ports A-B] --secret-file F\n"
             "                  [--sessions N] [--idle-timeout-s S] [--programs-file F]\n"
             "  hpcq-net KERNEL --to ADDR --port N --secret-file F [--interface IF] [--bind ADDR] [--timeout-s S]\n"
             "                  [--samples-file F] [--evidence-file F] [--raw-dir DIR] [--sizes-done A,B,...]\n"
             "                  [--capture-file F] [--OPTION VALUE ...]\n"
             "  hpcq-net conductor --interface IF|--bind ADDR [--ports A-B] --secret-file F --tournament F --spool F\n"
             "                     [--facts-dir DIR] [--evidence summary|full] [--raw-dir DIR] [--join-timeout-s S]\n"
             "                     [--finish-file F]\n"
             "  hpcq-net agent --to ADDR --port N --secret-file F --interface IF|--bind ADDR [--ports A-B]\n"
             "                 [--node NAME] [--idle-timeout-s S] [--programs-file F]\n"
             "  hpcq-net rank --programs-file F --test_no N --nodes A,B,... --report-prefix P [--interface IF]\n"
             "                [--evidence-file F] [--raw-dir DIR]      under an MPI launcher, one per node\n"
             "  hpcq-net facts [--interface IF] [--root DIR]\n"
             "  hpcq-net snapshot-diff BEFORE_DIR AFTER_DIR [--interface IF] [--counters full|summary]\n"
             "  hpcq-net --describe | --version | --help | KERNEL --help\n\n"
             "exit: 0 measured, 1 measured but invalid, 2 usage, 3 peer or control channel, 4 system call\n",
};

static int snapshot_diff_main(int argc, char **argv)
{
    const char *interface = NULL, *counters = NULL;
    bool full = false;
    const struct flag flags[] = {{"interface", &interface}, {"counters", &counters}};
    struct failure failure = {.state = "snapshot-diff"};
    if (argc < 4)
        fail(&failure, EXIT_USAGE, "found %d words: allowed: BEFORE_DIR AFTER_DIR", argc - 2);
    else
        (void)(arguments_parse(argc, argv, 4, flags, ROW_COUNT(flags), NULL, NULL, &failure) &&
               arguments_full("counters", counters, &full, &failure));
    if (failure.failed) {
        fail_print(&failure);
        return (int)failure.exit_code;
    }
    struct text json = {0};
    struct evidence *evidence = evidence_new_recorded(argv[2], argv[3], interface);
    evidence_before(evidence);
    evidence_after(evidence);
    evidence_json(evidence, full, &json);
    evidence_free(evidence);
    return program_print("snapshot-diff", &json);
}

int main(int argc, char **argv)
{
    const struct kernel *kernel = argc > 1 ? program_kernel(&program, argv[1]) : NULL;
    int code;
    if (program_begin(&program, argc, argv, &code))
        return code;
    if (kernel)
        return client_main(&program, kernel, argc, argv);
    if (argc > 1 && !strcmp(argv[1], "server"))
        return server_main(&program, argc, argv);
    if (argc > 1 && !strcmp(argv[1], "agent"))
        return agent_main(&program, argc, argv);
    if (argc > 1 && !strcmp(argv[1], "conductor"))
        return conductor_main(&program, argc, argv);
    if (argc > 1 && !strcmp(argv[1], "rank"))
        return rank_main(&program, argc, argv);
    if (argc > 1 && !strcmp(argv[1], "facts"))
        return facts_main(argc, argv);
    if (argc > 1 && !strcmp(argv[1], "snapshot-diff"))
        return snapshot_diff_main(argc, argv);
    fprintf(stderr, "error: %s: unknown: allowed: server conductor agent rank facts snapshot-diff",
            argc > 1 ? argv[1] : "no verb");
    for (size_t i = 0; kernels[i]; i++)
        if (!kernels[i]->internal)
            fprintf(stderr, " %s", kernels[i]->name);
    fprintf(stderr, "\n\nhint: hpcq-net --help\n");
    return EXIT_USAGE;
}
