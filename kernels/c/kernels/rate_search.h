/* Which rate is tried next when the highest one without loss is looked for: the idea of RFC 2544, 26.1, with steps that
 * need fewer trials.
 *
 *   all that is asked for -> what arrived of it -> a little more, and more -> halves between fine and lossy -> once
 * more
 */
#ifndef HPCQ_RATE_SEARCH_H
#define HPCQ_RATE_SEARCH_H

#include "engine/run.h"

enum search_state { SEARCH_ON, SEARCH_FOUND, SEARCH_NONE };

/* Rates in any one unit. fine: the highest without loss, 0: none yet; lossy: the lowest with loss, 0: none yet. */
struct rate_search {
    double rate, fine, lossy, resolution_ratio, step_ratio;
    size_t hints_left;
    bool confirms, sender_limits; /* this trial repeats one that was fine; the sender gave less than it was to */
    enum search_state state;
};

void rate_search_begin(struct rate_search *search, double most, double resolution_ratio);
/* How the trial at search->rate ended: what was offered and what arrived of it, in the same unit. Sets the next rate,
 * or the end. least: no rate below it is tried. */
void rate_search_trial(struct rate_search *search, double offered, double received, bool fine, double least);

enum { TRIALS_MAX = 200 };

struct trial {
    double begin_ms, offered_bps, received_bps, lost_ratio;
};

struct trials {
    struct trial list[TRIALS_MAX];
    size_t count;
};

/* A list of each figure for the result, as series whose intervals begin when their trial did. */
void trials_columns(struct run *run, const struct trials *trials);

#endif
