/* The client's side of a measurement, from connect to bye. */
#ifndef HPCQ_CLIENT_H
#define HPCQ_CLIENT_H

#include "engine/run.h"

struct client_place {
    const char *to, *interface, *bind_to, *secret_path, *programs_path;
    unsigned port;
    double timeout_s; /* 0: from the options */
};

/* True when it was measured; else run->failure says what happened, and in which state. */
bool client_run(struct run *run, const struct client_place *place);

#endif
