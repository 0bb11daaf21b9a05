/* One session of the server. */
#ifndef HPCQ_SESSION_H
#define HPCQ_SESSION_H

#include "describe/program.h"
#include "wire/address.h"
#include "wire/control.h"

/* Exit codes of a session's process. */
enum session_end { SESSION_SERVED = 0, SESSION_FAILED = 1, SESSION_REFUSED = 2 };

struct session_place {
    const struct program *program;
    const char *interface, *programs_path;
    struct port_range ports;
    struct address peer;
    bool (*claim)(const void *argument); /* the client has proved itself: waits for the turn to measure */
    const void *claim_argument;
};

/* The secret is wiped once the client has proved that it has it, or has not. */
enum session_end session_serve(int descriptor, const struct session_place *place, struct secret *secret,
                               struct failure *failure);

#endif
