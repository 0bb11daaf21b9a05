/* One step of a tournament: all its matches at once, and a barrier. */
#ifndef HPCQ_CONDUCTOR_STEP_H
#define HPCQ_CONDUCTOR_STEP_H

#include "tournament/decide.h"
#include "tournament/members.h"
#include "tournament/spool.h"

#include <poll.h>

struct conductor {
    const struct program *program;
    struct tournament tournament;
    struct members members;
    struct secret *secret; /* wiped once all are here */
    struct spool spool;
    struct decision decision;
    struct failure failure;
    const char *raw_folder; /* NULL: the files behind the counters are not kept */
    bool evidence_full;
    int signals;
    bool finish, stop;  /* asked to end after this step, now */
    bool all_gone;      /* it stops because no agent is left: whoever runs the job ended them */
    size_t lost_seen;   /* nodes that were lost when it last waited for the end of the job */
    int waits_left;     /* how many results without a peer may wait for it */
    uint64_t waited_ns; /* in this step: nobody was late in that time */
    struct pollfd *pollers;
    uint64_t play_no;
};

/* False when the tournament cannot go on; conductor->failure says why. */
bool conductor_step(struct conductor *conductor, const struct tournament_step *step);
/* Waits for agents and signals, and takes what has come; `on_message` gets what a member said. */
bool conductor_wait(struct conductor *conductor, uint64_t until_ns, void *argument,
                    void (*on_message)(struct conductor *conductor, void *argument, size_t member,
                                       const struct received *message));

#endif
