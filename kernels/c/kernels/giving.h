/* How the bytes of a message are given to a TCP socket: copied by send(), as they lie by MSG_ZEROCOPY, or out of a file
 * in memory by sendfile().
 *
 *   send(MSG_ZEROCOPY) no 0, 1, 2, ...            the pages stay with the kernel
 *   error queue  <- {0..1, as they lay}           the peer has acknowledged what calls 0 and 1 gave
 *                <- {2..2, copied all the same}   loopback, or a device that cannot gather */
#ifndef HPCQ_GIVING_H
#define HPCQ_GIVING_H

#include "kernels/flows.h"

enum giving_by { GIVE_SEND, GIVE_ZERO_COPY, GIVE_SENDFILE };
extern const char *const giving_choices[];
#define OPTION_ROW_GIVING(type)                                                                                        \
    OPTION_CHOICE_ROW(type, send_by, giving_choices,                                                                   \
                      "how the sender gives its bytes: send() copies them, zero_copy lets the device read them where " \
                      "they are (MSG_ZEROCOPY), sendfile takes them from a file in memory")

struct giving {
    enum giving_by by;
    const char *message;
    int file; /* sendfile: holds the message; 0: none */
    uint64_t given_count, kept_count,
        copied_count; /* zero copy: calls of this phase, and what the kernel said of them */
};

/* Once the sender's flows are open. The message stays where it is until giving_close(). */
bool giving_open(struct run *run, struct giving *giving, enum giving_by by, const struct flows *flows,
                 const char *message, size_t bytes);
/* A phase starts: what was given before is over. */
void giving_begin(struct giving *giving, const struct flows *flows);
/* As send() of the message from flow->sent on. */
ssize_t giving_give(struct run *run, struct giving *giving, const struct flow *flow, size_t bytes, int flags);
/* The phase is over: what the kernel still says, for a second at most; and what the system granted. */
void giving_end(struct run *run, struct giving *giving, const struct flows *flows);
/* What the kernel says of another thread's calls, added. */
void giving_join(struct giving *giving, struct giving *other, const struct flows *flows);
void giving_close(struct giving *giving);

#endif
