/* Which counters go into the result line. A laptop's go in whole; of a node with 256 CPUs and 2,000 interrupts the line
 * keeps what is told once per node, and of what is told once per CPU, queue or interrupt the largest few. */
#ifndef HPCQ_REDUCE_H
#define HPCQ_REDUCE_H

#include "evidence/counters.h"

enum { REDUCE_COUNT_MAX = 300, REDUCE_FAMILY_MAX = 4, REDUCE_INTERRUPT_MAX = 24 };

/* Sets keep[i] for each of differences->list; interface: whose own counters always stay. Returns how many stay. */
size_t reduce_select(const struct counters *differences, const char *interface, bool *keep);

#endif
