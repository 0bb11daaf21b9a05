/* See rate_search.h. */
#include "kernels/rate_search.h"

#include <math.h>
#include <string.h>

static const double sender_ratio = 0.97; /* a sender that gives less of what it was to give is at its limit */
enum { HINTS = 3 }; /* where loss does not depend on the rate, what arrives is always a little less */

void rate_search_begin(struct rate_search *search, double most, double resolution_ratio)
{
    *search = (struct rate_search){
        .rate = most, .resolution_ratio = resolution_ratio, .step_ratio = 2 * resolution_ratio, .hints_left = HINTS};
}

static void search_down(struct rate_search *search, double received)
{
    double hint = received * (1 - search->resolution_ratio / 2);
    if (search->hints_left && hint > 0 && hint < search->lossy * (1 - search->resolution_ratio)) {
        search->hints_left--;
        search->rate = hint;
    } else {
        search->rate = search->lossy / 2;
    }
}

static void search_between(struct rate_search *search, bool up)
{
    double middle = (search->fine + search->lossy) / 2, step = search->fine * (1 + search->step_ratio);
    search->rate = up ? fmin(middle, step) : middle;
    if (up)
        search->step_ratio *= 2;
}

static void search_next(struct rate_search *search, double received, bool fine, double least)
{
    if (search->sender_limits || search->lossy <= 0 ||
        (search->fine > 0 && search->lossy - search->fine <= search->resolution_ratio * search->lossy)) {
        search->confirms = true;
        search->rate = search->fine;
        return;
    }
    if (search->fine > 0)
        search_between(search, fine);
    else
        search_down(search, received);
    if (search->rate < least)
        search->state = SEARCH_NONE;
}

void rate_search_trial(struct rate_search *search, double offered, double received, bool fine, double least)
{
    bool limited = offered < sender_ratio * search->rate;
    double rate = fmin(offered, search->rate);
    if (search->confirms && fine) {
        search->state = SEARCH_FOUND;
        return;
    }
    if (search->confirms) { /* once fine, and now not: only what is clearly less can be */
        search->confirms = false;
        search->lossy = search->fine;
        search->fine = 0;
        search->sender_limits = false;
        search->rate = search->lossy * (1 - 2 * search->resolution_ratio);
        search->state = search->rate < least ? SEARCH_NONE : SEARCH_ON;
        return;
    }
    if (fine) {
        search->fine = fmax(search->fine, rate);
        search->sender_limits = limited;
    } else {
        search->lossy = search->lossy > 0 ? fmin(search->lossy, rate) : rate;
    }
    search_next(search, received, fine, least);
}

static void column(struct run *run, const struct trials *trials, const char *name, size_t offset)
{
    struct text json = {0};
    json_open(&json, '[');
    for (size_t i = 0; i < trials->count; i++) {
        double value;
        memcpy(&value, (const char *)&trials->list[i] + offset, sizeof value);
        json_number(&json, value);
    }
    json_close(&json, ']');
    run_column(run, false, name, &json);
    text_free(&json);
}

void trials_columns(struct run *run, const struct trials *trials)
{
    column(run, trials, "begin_ms", offsetof(struct trial, begin_ms));
    column(run, trials, "trial_rate_bps", offsetof(struct trial, offered_bps));
    column(run, trials, "trial_received_bps", offsetof(struct trial, received_bps));
    column(run, trials, "trial_lost_ratio", offsetof(struct trial, lost_ratio));
}
