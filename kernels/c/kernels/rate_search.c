/* See rate_search.h. */
#include "kernels/rate_search.h"

#include <math.h>
#include <string.h>

static const double sender_ratio = 0.97; /* a sender that gives less of what it was to give is at its limit */
/* Arrivals may take longer than the sending by this share, and by what a busy receiver costs. */
static const double grown_ratio = 0.01, grown_least_ns = 2e6;
static const double confirm_ratio = 2;    /* the last trial is this much longer */
static const double long_trial_ratio = 8; /* trials at low rates are longer, up to this */
static const double load_ratio = 0.8;     /* what arrived beside loss, and was fine: below it loss is not of load */
enum { TRIAL_DATAGRAMS = 1000 };
static const double near_ratio = 0.1; /* of loss: what may be a moment of the host, and is tried again */
enum { REPEATS = 1, REPEATS_OF_HOST = 3 };
enum { HINTS = 3 }; /* where loss does not depend on the rate, what arrives is always a little less */

void rate_search_begin(struct rate_search *search, const struct search_settings *settings, double datagram_bits)
{
    *search = (struct rate_search){.settings = *settings,
                                   .datagram_bits = datagram_bits,
                                   .rate = settings->rate_max_bps,
                                   .step_ratio = 2 * settings->resolution_ratio,
                                   .hints_left = HINTS};
}

double rate_search_trial_s(const struct rate_search *search)
{
    double datagrams_s = TRIAL_DATAGRAMS * search->datagram_bits / search->rate;
    return fmax(search->settings.trial_s, datagrams_s) * (search->confirms ? confirm_ratio : 1);
}

bool rate_search_ended(const struct rate_search *search)
{
    return search->state != SEARCH_ON || search->trial_count == TRIALS_MAX;
}

static void search_down(struct rate_search *search, double received)
{
    double hint = received * (1 - search->settings.resolution_ratio / 2);
    if (search->hints_left && hint > 0 && hint < search->lossy * (1 - search->settings.resolution_ratio)) {
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
        (search->fine > 0 && search->lossy - search->fine <= search->settings.resolution_ratio * search->lossy)) {
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

static void search_judged(struct rate_search *search, double offered, double received, bool fine, double least)
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
        search->rate = search->lossy * (1 - 2 * search->settings.resolution_ratio);
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

void rate_search_trial(struct rate_search *search, const struct trial_told *told)
{
    double bits = search->datagram_bits, sent = (double)told->sent, came = fmin((double)told->received, sent);
    double sent_in_ns = (double)told->sent_in_ns, arrived_in_ns = (double)told->arrived_in_ns;
    double took_ns = fmax(arrived_in_ns, sent_in_ns), lost_ratio = sent > 0 ? 1 - came / sent : 1;
    double offered = sent > 1 && sent_in_ns > 0 ? bits * (sent - 1) * 1e9 / sent_in_ns : search->rate;
    double least = bits * TRIAL_DATAGRAMS / (search->settings.trial_s * long_trial_ratio); /* nothing slower is tried */
    bool grown = arrived_in_ns > sent_in_ns + fmax(grown_ratio * sent_in_ns, grown_least_ns);
    double dropped = fmin((double)told->dropped, sent - came);
    bool of_host = dropped > 0 && (sent - came - dropped) / sent <= search->settings.loss_ratio_max && !grown;
    struct trial *trial = &search->trials[search->trial_count++];
    *trial = (struct trial){.begin_ms = floor((double)told->begin_ns / 1e6),
                            .offered_bps = offered,
                            .received_bps = took_ns > 0 ? bits * came * 1e9 / took_ns : 0,
                            .lost_ratio = lost_ratio,
                            .socket_drop_count = dropped,
                            .fine = lost_ratio <= search->settings.loss_ratio_max && !grown};
    search->received_count += came;
    search->last_sent_count = sent;
    if (!trial->fine && (of_host || lost_ratio <= near_ratio) &&
        search->repeat_count < (of_host ? REPEATS_OF_HOST : REPEATS)) {
        search->repeat_count++;
        return;
    }
    search->repeat_count = 0;
    if (!trial->fine && of_host && !(search->host_limit < offered && search->host_limit > 0))
        search->host_limit = offered;
    search_judged(search, offered, trial->received_bps, trial->fine, least);
}

static void column(struct run *run, const struct rate_search *search, const char *name, size_t offset)
{
    struct text json = {0};
    json_open(&json, '[');
    for (size_t i = 0; i < search->trial_count; i++) {
        double value;
        memcpy(&value, (const char *)&search->trials[i] + offset, sizeof value);
        json_number(&json, value);
    }
    json_close(&json, ']');
    run_column(run, false, name, &json);
    text_free(&json);
}

/* A rate that lost nothing beside a slower one that did: what lost was not the rate's doing. */
static void report_contradiction(struct run *run, const struct rate_search *search)
{
    const struct trial *fine = NULL, *lossy = NULL;
    for (size_t i = 0; i < search->trial_count; i++) {
        const struct trial *trial = &search->trials[i];
        const struct trial **best = trial->fine ? &fine : &lossy;
        if (!*best || (trial->fine ? trial->offered_bps > fine->offered_bps : trial->offered_bps < lossy->offered_bps))
            *best = trial;
    }
    if (fine && lossy && lossy->offered_bps < fine->offered_bps * (1 - search->settings.resolution_ratio))
        run_warn(run, "trials_contradict", "a trial at %.4g Mbit/s was fine, and a slower one at %.4g was not",
                 fine->offered_bps / 1e6, lossy->offered_bps / 1e6);
}

static void report_trials(struct run *run, const struct rate_search *search, struct search_metrics *metrics)
{
    const struct trial *lowest = &search->trials[0];
    for (size_t i = 0; i < search->trial_count; i++) {
        lowest = search->trials[i].offered_bps < lowest->offered_bps ? &search->trials[i] : lowest;
        metrics->received_max_bps = fmax(metrics->received_max_bps, search->trials[i].received_bps);
    }
    metrics->trial_count = (double)search->trial_count;
    metrics->sent_count = (double)run->sent_count;
    metrics->received_count = search->received_count;
    metrics->lowest_tried_bps = lowest->offered_bps;
    metrics->lowest_lost_ratio = lowest->lost_ratio;
    column(run, search, "begin_ms", offsetof(struct trial, begin_ms));
    column(run, search, "trial_rate_bps", offsetof(struct trial, offered_bps));
    column(run, search, "trial_received_bps", offsetof(struct trial, received_bps));
    column(run, search, "trial_lost_ratio", offsetof(struct trial, lost_ratio));
    column(run, search, "trial_socket_drop_count", offsetof(struct trial, socket_drop_count));
    report_contradiction(run, search);
    metrics->socket_drop_count = 0;
    for (size_t i = 0; i < search->trial_count; i++)
        metrics->socket_drop_count += search->trials[i].socket_drop_count;
    if (search->host_limit > 0) {
        metrics->receiver_limited_bps = search->host_limit;
        run_warn(run, "receiver_limited",
                 "from %.4g Mbit/s on the receiver's socket refused datagrams that the network had brought: the host "
                 "is the limit",
                 search->host_limit / 1e6);
    }
}

static void report_found(struct run *run, const struct rate_search *search, struct search_metrics *metrics)
{
    metrics->loss_free_rate_bps = fmin(search->fine, search->trials[search->trial_count - 1].offered_bps);
    metrics->loss_free_rate_pps = metrics->loss_free_rate_bps / search->datagram_bits;
    metrics->confirmed_count = search->last_sent_count;
    metrics->lossy_rate_bps = search->lossy > 0 ? search->lossy : (double)NAN;
    metrics->bracket_ratio = 1 - metrics->loss_free_rate_bps / metrics->lossy_rate_bps;
    if (search->sender_limits)
        run_warn(run, "sender_limited", "the sender gave no more than %.4g Mbit/s, and all of it arrived",
                 metrics->loss_free_rate_bps / 1e6);
    if (metrics->loss_free_rate_bps < load_ratio * metrics->received_max_bps)
        run_warn(run, "loss_below_capacity",
                 "%.4g Mbit/s arrived of a faster trial: loss begins far below what the path carries",
                 metrics->received_max_bps / 1e6);
}

void rate_search_report(struct run *run, const struct rate_search *search, struct search_metrics *metrics)
{
    if (search->trial_count)
        report_trials(run, search, metrics);
    if (search->state == SEARCH_NONE)
        run_invalid(run, "no rate without loss: at %.4g Mbit/s, the lowest tried, %.3g %% were lost",
                    metrics->lowest_tried_bps / 1e6, metrics->lowest_lost_ratio * 100);
    else if (search->state == SEARCH_ON)
        run_invalid(run, "the search did not end: %zu trials in %g s", search->trial_count,
                    run_common(run)->duration_s);
    else
        report_found(run, search, metrics);
}
