/* What this program is called and which kernels it holds; each main file has one. */
#ifndef HPCQ_PROGRAM_H
#define HPCQ_PROGRAM_H

#include "describe/kernel.h"

#define HPCQ_VERSION "1.0.0"
extern const char hpcq_build_id[]; /* a hash of sources, compiler and flags: build_id.c */

struct program {
    const char *name;
    const struct kernel *const *kernels; /* NULL-terminated */
    const char *usage;
};

const struct kernel *program_kernel(const struct program *program, const char *name);
void program_describe(const struct program *program, struct text *json);
/* What comes first in main(). --describe, --version, --help and KERNEL --help: prints, sets the exit code, and returns
 * true when argv asks for one of them. */
bool program_begin(const struct program *program, int argc, char **argv, int *code);
/* A line on standard output, and the text's end. Returns the exit code. */
int program_print(const char *state, struct text *out);

#endif
