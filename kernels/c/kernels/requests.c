/* See requests.h. */
#include "kernels/requests.h"

#include <math.h>
#include <sys/prctl.h>

static const double never_ns = 1e18; /* some 30 years */

void requests_prepare(struct requests *requests, const struct request_settings *settings)
{
    *requests = (struct requests){.gap_ns = settings->rate_pps > 0 ? 1e9 / settings->rate_pps : 0};
    if (requests->gap_ns > 0)
        prctl(PR_SET_TIMERSLACK, 1UL); /* else every wait is 50 us longer */
}

void requests_begin(struct requests *requests)
{
    *requests = (struct requests){.gap_ns = requests->gap_ns};
}

bool requests_may_start(const struct run *run)
{
    uint64_t limit = run->phase == PHASE_MEASURE ? (uint64_t)run_common(run)->operation_count_max : 0;
    return !run->closing && (!limit || run->operation_count + run->under_way_count < limit);
}

uint64_t requests_due(struct run *run, struct requests *requests)
{
    if (requests->gap_ns <= 0)
        return 0;
    if (!requests->origin_ns)
        requests->origin_ns = run->phase_start_ns;
    return requests->origin_ns + (uint64_t)fmin(requests->gap_ns * (double)requests->started_count, never_ns);
}

uint64_t requests_start(struct run *run, struct requests *requests)
{
    uint64_t now_ns = clock_now_ns(), due_ns = requests_due(run, requests);
    requests->started_count++;
    run->under_way_count++;
    if (!due_ns)
        return now_ns;
    if (now_ns > due_ns && now_ns - due_ns > requests->late_max_ns)
        requests->late_max_ns = now_ns - due_ns;
    return due_ns < now_ns ? due_ns : now_ns;
}

void requests_replied(struct run *run, struct requests *requests, uint64_t start_ns)
{
    run_round_trip(run, run->now_ns > start_ns ? run->now_ns - start_ns : 0);
    requests->replied_count++;
    requests->last_reply_ns = run->now_ns;
}

void requests_report(const struct run *run, const struct requests *requests, struct request_metrics *metrics)
{
    if (requests->last_reply_ns > run->phase_start_ns)
        metrics->reply_rate_pps =
            (double)requests->replied_count * 1e9 / (double)(requests->last_reply_ns - run->phase_start_ns);
    if (requests->gap_ns > 0)
        metrics->request_late_max_ns = (double)requests->late_max_ns;
}
