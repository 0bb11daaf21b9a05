/* The loop of a phase at the active and at the passive end. */
#ifndef HPCQ_PHASE_H
#define HPCQ_PHASE_H

#include "engine/run.h"

/* Forgets the phase before; the measurement's "before" snapshot is taken here, just before the start. */
void phase_begin(struct run *run, enum phase phase);
/* Runs the phase to its end at this end, with the `stop` and `stopped` messages. */
bool phase_run(struct run *run);
/* At a client whose test channel ended: the server's own reason takes the place of ours, if it gives one soon. */
void phase_peer_reason(struct run *run);
/* The "after" snapshot, and what follows from it. */
void phase_end(struct run *run);

#endif
