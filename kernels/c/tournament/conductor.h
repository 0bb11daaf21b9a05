/* The one who says what is played: `hpcq-net conductor`. */
#ifndef HPCQ_CONDUCTOR_H
#define HPCQ_CONDUCTOR_H

#include "describe/program.h"

int conductor_main(const struct program *program, int argc, char **argv); /* argv[1] is "conductor" */

#endif
