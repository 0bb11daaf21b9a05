/* How precisely the active end knows by now what it measures, from values by interval: what arrived of what it sent
 * (where nothing tells that, what it sent), or the median of the round trips in it. Asked for a width, it measures no
 * longer than that takes. */
#ifndef HPCQ_PRECISION_H
#define HPCQ_PRECISION_H

#include "engine/run.h"

void precision_begin(struct run *run);
/* Often, at the active end: true once the interval is as narrow, or the warm-up as level, as the person asked for. */
bool precision_reached(struct run *run);
void precision_warm(struct run *run); /* at the end of the warm-up: a warning where it was not level */
/* At the end: the metric of round trips and their series, and a warning where a width was not reached. */
void precision_end(struct run *run);

#endif
