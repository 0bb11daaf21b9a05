/* What went wrong, in which state, and with which exit code. One a run; the first failure stays. */
#ifndef HPCQ_FAIL_H
#define HPCQ_FAIL_H

#include <stdbool.h>

enum exit_code { EXIT_MEASURED = 0, EXIT_INVALID = 1, EXIT_USAGE = 2, EXIT_PEER = 3, EXIT_SYSTEM = 4 };

struct failure {
    const char *state; /* the state the run is in, by name */
    bool failed;
    enum exit_code exit_code;
    char message[512];
    char hint[256];
};

/* Each returns false, so that a caller can `return fail(...)`. */
bool fail(struct failure *failure, enum exit_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A system call failed: what was attempted, then errno in words. */
bool fail_system(struct failure *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool fail_hint(struct failure *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));

void fail_print(const struct failure *failure); /* `error: ...` and `hint: ...` to stderr */
const char *fail_errno_name(int error);         /* "ENOENT" */

#endif
