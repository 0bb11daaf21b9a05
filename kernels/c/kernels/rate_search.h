/* Which rate is tried next when the highest one without loss is looked for, whether a trial was fine, and what the
 * result says of them: the idea of RFC 2544, 26.1, with steps that need fewer trials.
 *
 *   all that is asked for -> what arrived of it -> a little more, and more -> halves between fine and lossy -> once
 * more
 *
 * A trial that failed narrowly is made once more, and one in which only the receiver's socket lost something three
 * times, before it counts.
 *
 * A trial is fine when no more than loss_ratio_max was lost and the arrivals took no longer than the sending: else a
 * queue on the path grew, and a longer trial would have lost. */
#ifndef HPCQ_RATE_SEARCH_H
#define HPCQ_RATE_SEARCH_H

#include "engine/run.h"

enum { TRIALS_MAX = 200 };

struct search_settings {
    double rate_max_bps, trial_s, resolution_ratio, loss_ratio_max;
};

#define SEARCH_OPTION(type, field, standard, minimum, maximum, help)                                                   \
    {#field, OPTION_NUMBER, offsetof(type, search.field), standard, minimum, maximum, NULL, help}
#define OPTION_ROWS_SEARCH(type)                                                                                       \
    SEARCH_OPTION(type, rate_max_bps, 1e10, 1e3, 1e13, "payload per second of the first trial; no trial is faster"),   \
        SEARCH_OPTION(type, trial_s, 0.5, 0.01, 60,                                                                    \
                      "length of a trial; the last one takes twice as long, and those of low rates up to eight "       \
                      "times, so that a trial has 1000 datagrams"),                                                    \
        SEARCH_OPTION(                                                                                                 \
            type, resolution_ratio, 0.01, 0.001, 0.5,                                                                  \
            "the search ends when the lowest rate with loss is at most this share above the highest without"),         \
        SEARCH_OPTION(type, loss_ratio_max, 0, 0, 0.5, "share of a trial's datagrams that may be lost; 0: none")

struct search_metrics {
    double loss_free_rate_bps, loss_free_rate_pps, lossy_rate_bps, bracket_ratio, trial_count, confirmed_count,
        received_max_bps, lowest_tried_bps, lowest_lost_ratio, sent_count, received_count, socket_drop_count,
        receiver_limited_bps;
};

#define SEARCH_ROW(type, field, better, help) {#field, better, offsetof(type, search.field), help}
#define METRIC_ROWS_SEARCH(type)                                                                                       \
    SEARCH_ROW(type, loss_free_rate_bps, BETTER_HIGHER,                                                                \
               "payload per second of the fastest trial that was fine, and that was fine again when repeated"),        \
        SEARCH_ROW(type, loss_free_rate_pps, BETTER_HIGHER, "the same in datagrams per second"),                       \
        SEARCH_ROW(type, lossy_rate_bps, BETTER_NONE,                                                                  \
                   "the slowest trial above it that was not fine; none: rate_max_bps was fine"),                       \
        SEARCH_ROW(type, bracket_ratio, BETTER_NONE, "how much of lossy_rate_bps lies between the two"),               \
        SEARCH_ROW(type, trial_count, BETTER_NONE, "trials; the series trial_* have each of them"),                    \
        SEARCH_ROW(type, confirmed_count, BETTER_NONE,                                                                 \
                   "datagrams of the last trial, none of which (or loss_ratio_max) was lost"),                         \
        SEARCH_ROW(type, received_max_bps, BETTER_NONE, "the most that arrived in any trial, with or without loss"),   \
        SEARCH_ROW(type, lowest_tried_bps, BETTER_NONE, "the slowest trial"),                                          \
        SEARCH_ROW(type, lowest_lost_ratio, BETTER_NONE, "what it lost"),                                              \
        SEARCH_ROW(type, sent_count, BETTER_NONE, "datagrams sent in all trials"),                                     \
        SEARCH_ROW(type, received_count, BETTER_NONE, "datagrams received in all trials"),                             \
        SEARCH_ROW(type, socket_drop_count, BETTER_LOWER,                                                              \
                   "datagrams of all trials that the receiver's full socket buffer refused: lost in the host"),        \
        SEARCH_ROW(type, receiver_limited_bps, BETTER_NONE,                                                            \
                   "the slowest rate at which nothing but the receiver's socket refused datagrams, however often it "  \
                   "was tried: a limit of the host, not of the network")

enum search_state { SEARCH_ON, SEARCH_FOUND, SEARCH_NONE };

struct trial {
    double begin_ms, offered_bps, received_bps, lost_ratio, socket_drop_count;
    bool fine;
};

/* Rates in payload bits per second. fine: the highest without loss, 0: none yet; lossy: the lowest with loss, 0: none
 * yet. */
struct rate_search {
    struct search_settings settings;
    double datagram_bits, rate, fine, lossy, step_ratio;
    size_t hints_left, repeat_count; /* how often the trial in hand was made before */
    bool confirms, sender_limits;    /* this trial repeats one that was fine; the sender gave less than it was to */
    enum search_state state;
    struct trial trials[TRIALS_MAX];
    size_t trial_count;
    double host_limit;                      /* 0: none */
    double received_count, last_sent_count; /* of all trials; of the last one */
};

/* How a trial ended. begin_ns: since the phase began. */
struct trial_told {
    uint64_t begin_ns, sent_in_ns, arrived_in_ns, sent, received, dropped; /* dropped: by the receiver's full socket */
};

void rate_search_begin(struct rate_search *search, const struct search_settings *settings, double datagram_bits);
double rate_search_trial_s(const struct rate_search *search); /* how long the trial at search->rate lasts */
/* The trial at search->rate is over: sets the next rate, or the end. */
void rate_search_trial(struct rate_search *search, const struct trial_told *told);
bool rate_search_ended(const struct rate_search *search);
/* Of the end that searched. Each trial is in the result as series, whose intervals begin when their trial did. */
void rate_search_report(struct run *run, const struct rate_search *search, struct search_metrics *metrics);

#endif
