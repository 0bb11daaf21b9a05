/* One loop over the flows of an end: which one may be served next. A kernel says what one flow does when it is ready.
 */
#ifndef HPCQ_FLOWS_H
#define HPCQ_FLOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FLOWS_MAX = 64 };

struct flow {
    int descriptor;
    bool ready;     /* until a call says EAGAIN; cleared by the kernel */
    size_t offset;  /* of the kernel: into the message under way */
    uint64_t bytes; /* of the kernel: moved in this phase */
};

struct flows {
    struct flow list[FLOWS_MAX];
    size_t count, turn;
};

/* The next flow in turn that is ready for `events` (poll(2)); waits wait_ms at most, then NULL. A single flow is always
 * ready: its calls block, with the time-out of its socket. */
struct flow *flows_next(struct flows *flows, short events, int wait_ms);
int flows_flags(const struct flows *flows); /* MSG_DONTWAIT where calls must not block */
void flows_begin(struct flows *flows);      /* a phase starts */
void flows_close(struct flows *flows);
/* Jain's index of what the flows moved: 1 when all moved the same, 1/count when one had it all
 * (Jain, Chiu and Hawe 1984). */
double flows_fairness(const struct flows *flows);

#endif
