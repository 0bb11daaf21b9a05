/* What the MPI kernels share: buffers, the times of a batch, and patterns that tell whether what came is what was sent.
 */
#ifndef HPCQ_MPI_EXCHANGE_H
#define HPCQ_MPI_EXCHANGE_H

#include "mpi/mpi_run.h"

enum buffer_policy { BUFFERS_HOT, BUFFERS_SEPARATE, BUFFERS_SWAPPED, BUFFERS_COLD }; /* the first two stay in place */
extern const char *const buffer_policies[];                                          /* NULL-terminated */

/* For the rows of a kernel's options. From a place that begins amid a cache line, the library's copies of 8 KiB between
 * two ranks of a node took 9 % longer. */
#define OPTION_ROWS_BUFFERS(type)                                                                                      \
    OPTION_CHOICE_ROW(type, buffers, buffer_policies,                                                                  \
                      "hot: one buffer; separate: one to send from, one to receive into (a collective needs both); "   \
                      "swapped: two in turn; cold: a ring twice as large as the last cache"),                          \
        OPTION_COMMON(type, buffer_offset_bytes, OPTION_INTEGER, 0, 0, PLACED_PAGE_BYTES / 2 - 1,                      \
                      "the first buffer begins so many bytes after the beginning of a page, the second twice as many:" \
                      " 16 is how malloc() places two"),                                                               \
        OPTION_ROW_PAGES(type)

extern const char *const rank_bindings[]; /* NULL-terminated */

/* For the rows of a kernel that all ranks of a set of nodes run. */
#define OPTION_ROWS_RANKS(type)                                                                                        \
    OPTION_INTEGER_ROW(type, node_count, 0, 0, 65536, "nodes; 0: as many as there are"),                               \
        OPTION_INTEGER_ROW(type, ranks_per_node, 1, 1, 1024,                                                           \
                           "ranks on each node, which follow each other; or per_core, per_numa, per_nic, per_gpu, by " \
                           "the cluster file's per_node"),                                                             \
        OPTION_CHOICE_ROW(type, rank_binding, rank_bindings,                                                           \
                          "numa: the ranks of a node run on its NUMA nodes in turn, with their memory; as_is: as the " \
                          "launcher binds them")

/* What these options say. */
struct ranks_asked {
    int64_t node_count, per_node, binding;
};

/* Before buffers are made: binds this rank. False, with the reason, where the number of ranks is not the one asked for.
 */
bool ranks_place(struct run *run, struct ranks_asked asked, int rank, int rank_count);

/* Places for messages. hot: always the same (one, or one to send from and one to receive into); separate: always one
 * to send from and one to receive into; swapped: two that change roles after each operation; cold: the next of a ring
 * that is twice as large as the last-level cache. Places begin offset_bytes after the beginning of a page, and every
 * other one twice as many: copies between places that lie alike within a cache line are faster. */
struct buffers {
    char *memory; /* of the run; begins offset_bytes after the beginning of a page */
    size_t message_bytes, slot_bytes, slot_count, offset_bytes;
    size_t send_slot, receive_slot;
    enum buffer_policy policy;
};

/* What the options say of buffers. */
struct buffers_asked {
    size_t message_bytes;
    enum buffer_policy policy;
    bool shared; /* one place for both, where no operation sends and receives at once */
};

void buffers_new(struct run *run, struct buffers *buffers, struct buffers_asked asked);
void buffers_next(struct buffers *buffers); /* after an operation */

static inline size_t buffers_place(const struct buffers *buffers, size_t slot)
{
    return slot * buffers->slot_bytes + buffers->offset_bytes * (slot & 1);
}

static inline char *buffers_send(const struct buffers *buffers)
{
    return buffers->memory + buffers_place(buffers, buffers->send_slot);
}

static inline char *buffers_receive(const struct buffers *buffers)
{
    return buffers->memory + buffers_place(buffers, buffers->receive_slot);
}

/* What stands in byte `index` of a block: made of who sends it, which of its blocks it is, and the operation's number.
 */
static inline uint8_t pattern(unsigned sender, unsigned block, unsigned operation, size_t index)
{
    return (uint8_t)(1 + sender * 37 + block * 11 + operation * 5 + index * 7 + (index >> 8) * 3);
}

void pattern_fill(char *to, size_t bytes, unsigned sender, unsigned block, unsigned operation);
/* The first byte that differs; `bytes` when all are right. */
size_t pattern_check(const char *from, size_t bytes, unsigned sender, unsigned block, unsigned operation);

/* The times of one batch, kept apart from the histogram, which would be work between timed operations. */
struct times {
    uint64_t *list; /* ns, MPI_BATCH_MAX of them */
    size_t count;
};

void times_new(struct times *times);
void times_free(struct times *times);
void times_into(struct times *times, struct run *run); /* into the run's histogram and samples; forgets them */

/* Rank 0: a sample from then to run->now_ns. Inline: it stands between timed operations. */
static inline void times_add(struct times *times, const struct run *run, uint64_t start_ns)
{
    if (!run->settling && run->is_active)
        times->list[times->count++] = run->now_ns - start_ns;
}

struct operation_metrics {
    double operation_p50_ns, operation_p90_ns, operation_p99_ns, operation_p999_ns, operation_min_ns, operation_max_ns,
        operation_mean_ns, clock_read_ns;
};

#define METRIC_OPERATION(type, field, help) {#field, BETTER_LOWER, offsetof(type, operation.field), help}

#define METRIC_ROWS_OPERATION(type)                                                                                    \
    METRIC_OPERATION(type, operation_p50_ns, "median time of one operation, from the histogram (within 0.8 %)"),       \
        METRIC_OPERATION(type, operation_p90_ns, "90 of 100 operations took at most this (from 50 of them)"),          \
        METRIC_OPERATION(type, operation_p99_ns, "99 of 100 operations took at most this (from 500)"),                 \
        METRIC_OPERATION(type, operation_p999_ns, "999 of 1000 operations took at most this (from 5000)"),             \
        METRIC_OPERATION(type, operation_min_ns, "shortest operation (exact)"),                                        \
        METRIC_OPERATION(type, operation_max_ns, "longest operation (exact)"),                                         \
        METRIC_OPERATION(type, operation_mean_ns, "mean time of an operation (exact)"),                                \
        {"clock_read_ns", BETTER_NONE, offsetof(type, operation.clock_read_ns),                                        \
         "what one reading of the clock takes at rank 0"}

void operation_fill(const struct histogram *histogram, struct operation_metrics *metrics);
/* Rank 0: the same of the run. Returns bits of one message over the median time, NAN for messages without bytes. */
double operations_report(const struct run *run, int64_t message_bytes, struct operation_metrics *metrics);

#endif
