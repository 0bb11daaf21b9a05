/* The client's side of a measurement, from connect to bye. */
#ifndef HPCQ_CLIENT_H
#define HPCQ_CLIENT_H

#include "engine/sweep.h"

struct client_place {
    const char *to, *interface, *bind_to, *secret_path, *programs_path;
    unsigned port;
    double timeout_s; /* 0: from the options */
};

/* One measurement, or one for each size of a sweep: see sweep_run(). Where it failed, run->failure says in which state.
 */
int client_run(struct run *run, const struct client_place *place, struct result_out *out);
/* `PROGRAM KERNEL --OPTION VALUE ...`: runs the client of this kernel, prints its line, returns the exit code. */
int client_main(const struct program *program, const struct kernel *kernel, int argc, char **argv);

#endif
