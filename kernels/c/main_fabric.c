/* hpcq-fabric: the kernels over libfabric, and the server they talk to. It is built where libfabric is. */
#include "describe/arguments.h"
#include "engine/client.h"
#include "engine/server.h"
#include "facts/facts.h"
#include "tournament/agent.h"
#include "tournament/conductor.h"

#include <stdio.h>
#include <string.h>

static const struct kernel *const kernels[] = {&kernel_fabric_pingpong, &kernel_fabric_stream, &kernel_fabric_write,
                                               &kernel_fabric_read,     &kernel_fabric_atomic, NULL};

static const struct program program = {
    .name = "hpcq-fabric",
    .kernels = kernels,
    .usage = "hpcq-fabric: network measurements over libfabric, one JSON line each\n\n"
             "  hpcq-fabric server --interface IF|--bind ADDR [--port N|--ports A-B] --secret-file F\n"
             "                     [--sessions N] [--idle-timeout-s S]\n"
             "  hpcq-fabric KERNEL --to ADDR --port N --secret-file F [--interface IF] [--bind ADDR] [--timeout-s S]\n"
             "                     [--samples-file F] [--evidence-file F] [--raw-dir DIR] [--sizes-done A,B,...]\n"
             "                     [--OPTION VALUE ...]\n"
             "  hpcq-fabric conductor, agent, facts: as of hpcq-net\n"
             "  hpcq-fabric --describe | --version | --help | KERNEL --help\n\n"
             "exit: 0 measured, 1 measured but invalid, 2 usage, 3 peer or control channel, 4 system call\n",
};

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
    if (argc > 1 && !strcmp(argv[1], "facts"))
        return facts_main(argc, argv);
    fprintf(stderr, "error: %s: unknown: allowed: server conductor agent facts", argc > 1 ? argv[1] : "no verb");
    for (size_t i = 0; kernels[i]; i++)
        fprintf(stderr, " %s", kernels[i]->name);
    fprintf(stderr, "\n\nhint: hpcq-fabric --help\n");
    return EXIT_USAGE;
}
