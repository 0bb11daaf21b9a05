/* A foreign program as a process group of its own: started with a list of words, never by a shell; its output is kept,
 * and it ends when its time is over, with everything that it started. */
#ifndef HPCQ_CHILD_H
#define HPCQ_CHILD_H

#include "base/fail.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { CHILD_OUTPUT_MAX = 4 << 20 }; /* of each stream; more is cut, and the result says so */

struct words {
    char **list; /* ends with NULL */
    size_t count;
};
void words_add(struct words *words, const char *word);
void words_free(struct words *words);

struct child {
    pid_t pid; /* 0: none was started */
    int descriptors[2];
    struct text streams[2]; /* standard output, standard error */
    bool cut, ended, timed_out, killed;
    int status;
    struct rusage usage;
    uint64_t start_ns, end_ns;
};

/* Starts it in this folder (NULL: here), with no input and with LC_ALL=C. A program that is not there is a failure at
 * once. */
bool child_start(struct child *child, const struct words *words, const char *folder, struct failure *failure);
/* Reads what it wrote, for at most this long; true once it has ended and all it wrote is here. */
bool child_turn(struct child *child, int wait_ms);
/* TERM to its group, KILL a second later. Does nothing to one that has ended. */
void child_end(struct child *child);
/* Ends it at its time. True when it has ended by itself before. */
bool child_wait(struct child *child, double limit_s);
/* Exit code, 128 + the signal, or -1 while it lives. */
int child_code(const struct child *child);
/* {"command", "exit_code", "timed_out", "killed", "elapsed_ns", "output", "errors", "cut"}; version may be NULL. */
void child_json(const struct child *child, const struct words *words, const char *version, struct text *json);
/* The last line that it wrote, for an error message. */
void child_last_words(const struct child *child, char *out, size_t size);
void child_free(struct child *child);

#endif
