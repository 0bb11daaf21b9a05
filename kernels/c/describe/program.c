/* See program.h. Nothing here opens a socket or starts MPI. */
#include "describe/program.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { DESCRIBE_FORMAT = 1 };

const struct kernel *program_kernel(const struct program *program, const char *name)
{
    for (size_t i = 0; program->kernels[i]; i++)
        if (!strcmp(program->kernels[i]->name, name))
            return program->kernels[i];
    return NULL;
}

static void kernel_describe(const struct kernel *kernel, struct text *json)
{
    json_open(json, '{');
    json_key(json, "name");
    json_string(json, kernel->name);
    json_key(json, "summary");
    json_string(json, kernel->summary);
    json_key(json, "method");
    json_string(json, kernel->method);
    json_key(json, "size_option");
    json_string(json, kernel->size_option);
    json_key(json, "options");
    options_describe(&kernel->options, json);
    json_key(json, "relations");
    relations_describe(&kernel->options, json);
    json_key(json, "metrics");
    metrics_describe(&kernel->metrics, json);
    json_close(json, '}');
}

void program_describe(const struct program *program, struct text *json)
{
    json_open(json, '{');
    json_key(json, "format");
    json_integer(json, DESCRIBE_FORMAT);
    json_key(json, "program");
    json_string(json, program->name);
    json_key(json, "version");
    json_string(json, HPCQ_VERSION);
    json_key(json, "build_id");
    json_string(json, hpcq_build_id);
    json_key(json, "kernels");
    json_open(json, '[');
    for (size_t i = 0; program->kernels[i]; i++)
        if (!program->kernels[i]->internal)
            kernel_describe(program->kernels[i], json);
    json_close(json, ']');
    json_close(json, '}');
}

static void kernel_help(const struct program *program, const struct kernel *kernel, struct text *out)
{
    text_print(out, "%s %s: %s\n\n%s\n\noptions:\n", program->name, kernel->name, kernel->summary, kernel->method);
    options_help(&kernel->options, out);
    if (kernel->options.relation_count)
        text_print(out, "\nof these, each beside the others:\n");
    relations_help(&kernel->options, out);
    text_print(out, "\nmetrics:\n");
    metrics_help(&kernel->metrics, out);
}

static void program_help(const struct program *program, struct text *out)
{
    text_print(out, "%s\nkernels:\n", program->usage);
    for (size_t i = 0; program->kernels[i]; i++)
        if (!program->kernels[i]->internal)
            text_print(out, "  %-14s %s\n", program->kernels[i]->name, program->kernels[i]->summary);
}

int program_print(const char *state, struct text *out)
{
    struct failure failure = {.state = state};
    text_add(out, "\n", 1);
    if (!text_write(out, 0, STDOUT_FILENO)) {
        fail_system(&failure, "write to standard output");
        fail_print(&failure);
    }
    text_free(out);
    return failure.failed ? (int)failure.exit_code : EXIT_MEASURED;
}

/* A closed standard output would become the next socket, and a result would go there. What takes its place can be read
 * only, so whoever writes is told. */
static void descriptors_keep(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++)
        if (fcntl(descriptor, F_GETFD) < 0)
            open("/dev/null", O_RDONLY); /* the lowest that is free */
}

bool program_begin(const struct program *program, int argc, char **argv, int *code)
{
    descriptors_keep();
    signal(SIGXFSZ, SIG_IGN); /* a file as long as `ulimit -f` allows is an error of a call, with its word */
    struct text out = {0};
    const struct kernel *kernel = argc > 2 ? program_kernel(program, argv[1]) : NULL;
    if (argc > 1 && !strcmp(argv[1], "--describe"))
        program_describe(program, &out);
    else if (argc > 1 && !strcmp(argv[1], "--version"))
        text_print(&out, "%s %s build %s", program->name, HPCQ_VERSION, hpcq_build_id);
    else if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
        program_help(program, &out);
    else if (kernel && (!strcmp(argv[2], "--help") || !strcmp(argv[2], "-h")))
        kernel_help(program, kernel, &out);
    else
        return false;
    *code = program_print(program->name, &out);
    return true;
}
