/* The agents of a tournament as the conductor sees them: who is here, who was lost and why. */
#ifndef HPCQ_MEMBERS_H
#define HPCQ_MEMBERS_H

#include "tournament/tournament.h"
#include "wire/address.h"
#include "wire/control.h"

struct member {
    const char *node;
    struct control control; /* descriptor -1: not here */
    bool here;
    char reason[200];  /* why it is not */
    char address[128]; /* where it serves */
    unsigned port;
    uint64_t pinged_ns; /* 0: no ping is open */
};

struct members {
    struct member *list; /* by index of the tournament's nodes */
    size_t count, here_count;
    const struct secret *secret;
    const char *facts_folder; /* NULL: facts are not kept */
    int listener;             /* -1 once nobody is awaited any more */
    struct arrival *arrivals; /* connections on their way through the handshake */
    size_t arrival_count, arrival_max;
    unsigned refused_count, turned_away_count;
};

/* One connection between accept and `here`: it is read as it speaks, and holds nobody up. */
struct arrival {
    struct control control;
    struct nonces nonces;
    bool challenged;
    struct address host;
    uint64_t begun_ns;
};

void members_begin(struct members *members, const struct tournament *tournament);
void members_end(struct members *members); /* says `end` to all who are here */
/* Takes what came in on the listener. Who is new is turned away when there is no room, or its host has
 * more than its share without proof; nobody goes for another within its first second. Agents come again. */
void members_accept(struct members *members);
/* Reads on what a connection says; it leaves the arrivals as a member, or because it failed. */
void members_arrival(struct members *members, size_t index, const char *build_id);
void members_late(struct members *members); /* those that said too little within 10 s go */
/* Nobody else is awaited; those who did not come are lost. */
void members_close(struct members *members, double waited_s);
bool member_send(struct members *members, size_t index, const struct text *message);
void member_lost(struct members *members, size_t index, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
