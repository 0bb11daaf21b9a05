/* One node of a tournament: `hpcq-net agent`. */
#ifndef HPCQ_AGENT_H
#define HPCQ_AGENT_H

#include "describe/program.h"

int agent_main(const struct program *program, int argc, char **argv); /* argv[1] is "agent"; returns the exit code */

#endif
