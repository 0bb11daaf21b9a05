/* What this program was built from: a hash that the Makefile passes. The one object that is not the same in both
 * programs, so that all others are compiled once. */
#include "describe/program.h"

const char hpcq_build_id[] = HPCQ_BUILD_ID;
