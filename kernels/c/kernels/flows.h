/* One loop over the flows of an end. A kernel says what one flow does: when the next thing is due, what is sent then,
 * and what is done with what can be read. Waiting, turns and system calls are here alone. */
#ifndef HPCQ_FLOWS_H
#define HPCQ_FLOWS_H

#include "engine/run.h"

enum { FLOWS_MAX = 1024, FLOWS_OF_REQUESTS_MAX = 64 };
#define FLOWS_NEVER UINT64_MAX

/* How an end waits for its sockets. */
enum flows_wait { FLOWS_BLOCK, FLOWS_EPOLL, FLOWS_SPIN };
extern const char *const flows_waits[];
#define FLOWS_WAIT_HELP                                                                                                \
    "how both ends wait for their sockets: block in the call (poll() with many flows), epoll, or spin (a core, no "    \
    "wake-up)"
#define OPTION_ROW_WAIT(type) OPTION_CHOICE_ROW(type, wait_by, flows_waits, FLOWS_WAIT_HELP)

enum flows_direction { CLIENT_TO_SERVER, SERVER_TO_CLIENT, BOTH_WAYS };
extern const char *const flows_directions[];
extern const char *const flows_ways[]; /* without both */

struct flow {
    int descriptor;
    size_t index;
    bool readable, writable; /* until a call says EAGAIN: the kernel clears them */
    bool held;               /* of the kernel: there is nothing to send on it now */
    size_t sent, received;   /* of the kernel: into the message under way, each way */
    uint64_t count, bytes;   /* of the kernel: sent or received in this phase */
};

struct flows {
    struct flow list[FLOWS_MAX];
    size_t count, turn_out, turn_in;
    enum flows_wait wait;
    bool spin_to_due; /* the sender's time is kept by spinning, not by sleeping */
    int epoll;
};

/* What one flow does. `flags` are for send() and recv(): 0 where the call may block, else MSG_DONTWAIT. Each sets
 * run->now_ns after its call and counts run->call_count. */
struct flow_events {
    /* When this end wants to send next: 0 whenever a flow takes it, FLOWS_NEVER not before something was received. */
    uint64_t (*due)(struct run *run);
    enum step (*put)(struct run *run, struct flow *flow, int flags); /* it is due */
    enum step (*get)(struct run *run, struct flow *flow, int flags); /* there may be something; NULL: nothing comes */
};

/* One step of the run: what is due is sent, what is there is received, else this end waits, 50 ms at most. */
enum step flows_step(struct run *run, struct flows *flows, const struct flow_events *events);
void flows_begin(struct flows *flows);                                          /* a phase starts */
bool flows_prepare(struct run *run, struct flows *flows, enum flows_wait wait); /* once all are open */
/* Every count-th flow from `index` on; they stay open when the part is forgotten. */
void flows_part(const struct flows *all, struct flows *part, size_t index, size_t count);
void flows_forget(struct flows *part);
void flows_close(struct flows *flows);
/* Jain's index of what the flows moved: 1 when all moved the same, 1/count when one had it all
 * (Jain, Chiu and Hawe 1984). */
double flows_fairness(const struct flows *flows);

#endif
