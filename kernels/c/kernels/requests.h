/* What both ping-pongs ask for: sizes there and back, how many are under way, and when the next one is due. */
#ifndef HPCQ_REQUESTS_H
#define HPCQ_REQUESTS_H

#include "engine/round_trip.h"
#include "kernels/flows.h"

enum { OUTSTANDING_MAX = 256 };

struct request_settings {
    int64_t reply_bytes, outstanding_count, flow_count, wait_by;
    double rate_pps;
};

#define REQUEST_ROW(type, field, kind, standard, minimum, maximum, help)                                               \
    {#field, kind, offsetof(type, requests.field), standard, minimum, maximum, NULL, help}
#define OPTION_ROWS_REQUESTS(type, reply_max)                                                                          \
    REQUEST_ROW(type, reply_bytes, OPTION_INTEGER, 0, 0, reply_max, "bytes of the reply; 0: as the request"),          \
        REQUEST_ROW(type, outstanding_count, OPTION_INTEGER, 1, 1, OUTSTANDING_MAX,                                    \
                    "requests of a flow that are under way at once"),                                                  \
        REQUEST_ROW(type, flow_count, OPTION_INTEGER, 1, 1, FLOWS_OF_REQUESTS_MAX,                                     \
                    "connections or pairs of ports that requests go over, in turn"),                                   \
        {"wait_by", OPTION_CHOICE, offsetof(type, requests.wait_by), 0, 0, 0, flows_waits, FLOWS_WAIT_HELP},           \
        REQUEST_ROW(type, rate_pps, OPTION_NUMBER, 0, 0, 1e8,                                                          \
                    "requests per second over all flows, each timed from when it was due, also where it had to "       \
                    "wait for outstanding_count; 0: the next one follows a reply (closed loop)")

struct request_metrics {
    double reply_rate_pps, request_late_max_ns;
};

#define METRIC_ROWS_REQUESTS(type)                                                                                     \
    {"reply_rate_pps", BETTER_HIGHER, offsetof(type, requests.reply_rate_pps),                                         \
     "replies per second, from the start of the measurement to the last reply"},                                       \
        {"request_late_max_ns", BETTER_LOWER, offsetof(type, requests.request_late_max_ns),                            \
         "with rate_pps: the most that a request was sent after it was due"}

/* Client: the times of the requests of a phase. */
struct requests {
    double gap_ns; /* 0: closed loop */
    uint64_t origin_ns, late_max_ns, started_count, replied_count, last_reply_ns;
};

void requests_prepare(struct requests *requests, const struct request_settings *settings);
void requests_begin(struct requests *requests);
bool requests_may_start(const struct run *run); /* the phase goes on, and operation_count_max is not reached */
/* When the next one is due; 0: now. */
uint64_t requests_due(struct run *run, struct requests *requests);
/* One is sent now: the time from which it counts, which is when it was due. */
uint64_t requests_start(struct run *run, struct requests *requests);
void requests_replied(struct run *run, struct requests *requests, uint64_t start_ns); /* at run->now_ns */
void requests_report(const struct run *run, const struct requests *requests, struct request_metrics *metrics);

#endif
