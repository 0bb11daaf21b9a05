/* Sessions: listening, one process a connection, their ends. The server and the agent are made of it. */
#ifndef HPCQ_SESSIONS_H
#define HPCQ_SESSIONS_H

#include "describe/program.h"
#include "wire/address.h"
#include "wire/control.h"

#include <sys/types.h>

enum {
    SESSIONS_MAX = 16,
    SESSIONS_OF_ONE_HOST_MAX = SESSIONS_MAX / 2, /* that have proved nothing: a flood leaves the rest to others */
    REFUSALS_SAID_MAX = 20                       /* more are counted, so that a flood fills no log */
};

/* What the children tell their parent. */
struct session_signs {
    _Atomic unsigned refused_count;
    unsigned char proven[SESSIONS_MAX];    /* by place: its client knows the secret */
    unsigned char measuring[SESSIONS_MAX]; /* it has its turn: nobody else is let in meanwhile */
};

struct sessions {
    const struct program *program;
    const char *interface, *programs_path;
    struct secret secret;
    struct port_range ports;
    int listener, turn;
    pid_t children[SESSIONS_MAX]; /* 0: a free place */
    uint64_t begun_ns[SESSIONS_MAX];
    struct address hosts[SESSIONS_MAX];
    struct session_signs *signs; /* shared with the children */
    size_t child_count;
    uint64_t served;
    uint64_t last_busy_ns;
};

/* Listens at the address, which then has its port. */
bool sessions_listen(struct sessions *sessions, struct address *address, struct failure *failure);
/* To poll for a connection; -1 while there is no room, or one measures, which a new process would disturb. */
int sessions_descriptor(const struct sessions *sessions);
/* How long to wait at most before the descriptor is asked for again; -1: until something happens. */
int sessions_wait_ms(const struct sessions *sessions);
/* Takes one connection into a process of its own, which keeps none of the `count` descriptors. Without a free place the
 * oldest of those that have proved nothing goes, but nobody within its first second, which is enough for a handshake.
 * A host that has half of the places without proof gets no more of them. Clients that are turned away come again. */
void sessions_accept(struct sessions *sessions, const int *descriptors, size_t count);
bool sessions_ended(struct sessions *sessions, pid_t child, int status); /* false: it was not one of ours */
void sessions_end(const struct sessions *sessions);                      /* says how many were refused without a word */
bool sessions_working(const struct sessions *sessions); /* whether one has a client that proved itself */
void sessions_signal(const struct sessions *sessions, int number);
/* Signals as a descriptor: TERM, INT, USR1 and CHLD; blocked otherwise. */
int sessions_signals(struct failure *failure);
/* In a new child: signals as a program has them, and it ends with its parent, whatever state it is in. */
void sessions_child(pid_t parent);
/* The address to listen at, from --bind or --interface. */
bool sessions_address(const char *interface, const char *bind_to, struct address *address, struct failure *failure);

#endif
