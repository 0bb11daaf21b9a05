/* One measurement as a client, in a process of its own: the agent's part in a match. */
#ifndef HPCQ_AGENT_PLAY_H
#define HPCQ_AGENT_PLAY_H

#include "describe/program.h"
#include "wire/control.h"

#include <sys/types.h>

struct play {
    uint64_t no;
    pid_t child;    /* 0: none */
    int descriptor; /* where the child writes its line; -1: at its end */
    int status;
    struct text line;
};

struct play_place {
    const struct program *program;
    const char *interface, *secret_path, *programs_path;
    const int *inherited; /* what the child must not keep */
    size_t inherited_count;
};

/* Starts what a `play` message asks for; a play that is still in hand is given up. */
bool play_start(struct play *play, const struct play_place *place, const struct received *message,
                struct failure *failure);
int play_descriptor(const struct play *play); /* to poll while it measures, else -1 */
void play_read(struct play *play);
void play_ended(struct play *play, pid_t child, int status);
/* The `result` message once the child has ended and all it wrote is here; false before, and with nothing in hand. */
bool play_result(struct play *play, struct text *message);
void play_kill(struct play *play);
void play_free(struct play *play);

#endif
