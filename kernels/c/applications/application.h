/* What the application-shaped kernels share: an operation of all ranks that computes and communicates.
 *
 *   each operation   barrier (not timed) | stamp, the work, stamp    at every rank; each call of MPI within is timed
 * too each batch       the longest time of any rank, operation by operation, goes to rank 0 at the end       rank 0
 * does the same work alone while the others sleep: what the speed-up is against
 */
#ifndef HPCQ_APPLICATION_H
#define HPCQ_APPLICATION_H

#include "mpi/exchange.h"

struct application {
    MPI_Comm communicator;
    int rank, size, on_node; /* on_node: ranks of each node, which follow each other */
    struct times times;
    uint64_t mpi_ns;               /* this rank, the operation under way: in calls of MPI */
    uint64_t mpi_sum_ns, whole_ns; /* this rank, all measured operations */
    double given_bytes;            /* this rank, the last operation: what others cannot have from elsewhere */
    double left_bytes;             /* of these, what ranks of other nodes cannot have from elsewhere */
    double all_left_bytes;         /* all measured operations */
    double alone_ns;               /* rank 0: the same work alone; NAN: not measured */
};

struct application_metrics {
    double operation_count, rank_count, communication_share_ratio, communication_share_max_ratio, communication_mean_ns,
        imbalance_ratio, alone_ns, speed_up_ratio, efficiency_ratio, moved_bytes, client_moved_bytes,
        server_moved_bytes;
};

#define METRIC_APPLICATION(type, field, better, help) {#field, better, offsetof(type, application.field), help}

#define METRIC_ROWS_APPLICATION(type)                                                                                  \
    METRIC_APPLICATION(type, communication_share_ratio, BETTER_LOWER,                                                  \
                       "share of its time that a rank spends in calls of MPI, waiting for others included; mean of "   \
                       "the ranks"),                                                                                   \
        METRIC_APPLICATION(type, communication_share_max_ratio, BETTER_LOWER,                                          \
                           "the same of the rank that spends most there"),                                             \
        METRIC_APPLICATION(type, communication_mean_ns, BETTER_LOWER,                                                  \
                           "time of one operation that a rank spends in calls of MPI; mean of operations and ranks"),  \
        METRIC_APPLICATION(type, imbalance_ratio, BETTER_LOWER,                                                        \
                           "how much longer than the mean the rank computes that computes longest: the others wait "   \
                           "for it in MPI, which no link explains"),                                                   \
        METRIC_APPLICATION(type, speed_up_ratio, BETTER_HIGHER, "alone_ns over operation_p50_ns"),                     \
        METRIC_APPLICATION(type, efficiency_ratio, BETTER_HIGHER, "speed_up_ratio over rank_count"),                   \
        METRIC_APPLICATION(type, alone_ns, BETTER_NONE,                                                                \
                           "the same work by rank 0 alone, in the same run, after the measurement: median of three, "  \
                           "or of fewer where they take longer than duration_s"),                                      \
        METRIC_APPLICATION(type, moved_bytes, BETTER_NONE,                                                             \
                           "what ranks give each other in one operation, all together; how the library passes it on "  \
                           "does not count"),                                                                          \
        METRIC_APPLICATION(                                                                                            \
            type, client_moved_bytes, BETTER_NONE,                                                                     \
            "bytes that have to leave rank 0 for other nodes in all operations, whatever the library does"),           \
        METRIC_APPLICATION(type, server_moved_bytes, BETTER_NONE,                                                      \
                           "the same of the server's rank: the first one of the second node"),                         \
        METRIC_APPLICATION(type, operation_count, BETTER_NONE, "operations measured"),                                 \
        METRIC_APPLICATION(type, rank_count, BETTER_NONE, "ranks that took part")

/* False, with the reason, where the number of ranks is not the one asked for. */
bool application_new(struct run *run, struct application *application, struct ranks_asked asked);
void application_free(struct application *application);
/* False, with the reason, where this node has less memory than that. what: the option that says how much. */
bool application_fits(struct run *run, const char *what, int64_t value, double bytes);
void application_begin(struct application *application); /* a phase starts */

/* One operation: `work` returns what MPI does, adds to mpi_ns what it spends there, and sets given_bytes
 * and left_bytes. */
bool application_operate(struct run *run, struct application *application, int (*work)(void *), void *state);
bool application_batch_end(struct run *run, struct application *application);

/* All ranks call it, after the measurement: rank 0 does `work` up to three times, not longer than limit_s if once is
 * done; the others sleep. */
void application_alone(struct application *application, double limit_s, int (*work)(void *), void *state);
/* All ranks call it; moved_bytes: at rank 0, of one operation. */
void application_report(struct run *run, const struct application *application, double moved_bytes,
                        struct operation_metrics *operation, struct application_metrics *metrics);

static inline bool application_on_my_node(const struct application *application, int rank)
{
    return rank / application->on_node == application->rank / application->on_node;
}

/* The time in a call of MPI: `since_ns = clock_now_ns(); rc = MPI_...; application_called(application, since_ns);` */
static inline void application_called(struct application *application, uint64_t since_ns)
{
    application->mpi_ns += clock_now_ns() - since_ns;
}

/* Noise that every rank computes alike: number `index` of the stream `seed` (splitmix64, Steele, Lea and Flood 2014).
 */
static inline uint64_t application_noise(uint64_t seed, uint64_t index)
{
    uint64_t word = seed + (index + 1) * 0x9e3779b97f4a7c15u;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
}

/* Part number `rank` of `count` things dealt to `size` ranks: the first ranks have one more where it does not divide.
 */
static inline size_t application_first(size_t count, int rank, int size)
{
    size_t part = (size_t)rank, parts = (size_t)size;
    return part * (count / parts) + (part < count % parts ? part : count % parts);
}

#endif
