/* Sessions: listening, one process a connection, their ends. The server and the agent are made of it. */
#ifndef HPCQ_SESSIONS_H
#define HPCQ_SESSIONS_H

#include "describe/program.h"
#include "wire/address.h"
#include "wire/control.h"

#include <sys/types.h>

enum { SESSIONS_MAX = 16 };

struct sessions {
    const struct program *program;
    const char *interface;
    struct secret secret;
    struct port_range ports;
    int listener, turn;
    pid_t children[SESSIONS_MAX]; /* 0: a free place */
    uint64_t begun_ns[SESSIONS_MAX];
    unsigned char *proven; /* by place; shared with the children, who tell that their client knows the secret */
    size_t child_count;
    uint64_t served;
    uint64_t last_busy_ns;
};

/* Listens at the address, which then has its port. */
bool sessions_listen(struct sessions *sessions, struct address *address, struct failure *failure);
int sessions_descriptor(const struct sessions *sessions); /* to poll for a connection; -1 while there is no room */
/* Takes one connection into a process of its own, which keeps none of the `count` descriptors. Without a free place the
 * oldest of those that have proved nothing goes: connections that say nothing shut nobody out. */
void sessions_accept(struct sessions *sessions, const int *descriptors, size_t count);
bool sessions_ended(struct sessions *sessions, pid_t child, int status); /* false: it was not one of ours */
bool sessions_working(const struct sessions *sessions); /* whether one has a client that proved itself */
void sessions_signal(const struct sessions *sessions, int number);
/* Signals as a descriptor: TERM, INT, USR1 and CHLD; blocked otherwise. */
int sessions_signals(struct failure *failure);
/* In a new child: signals as a program has them, and it ends with its parent, whatever state it is in. */
void sessions_child(pid_t parent);
/* The address to listen at, from --bind or --interface. */
bool sessions_address(const char *interface, const char *bind_to, struct address *address, struct failure *failure);

#endif
