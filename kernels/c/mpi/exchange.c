/* See exchange.h. */
#include "mpi/exchange.h"

#include "engine/round_trip.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CACHE_BYTES_UNKNOWN = 64 << 20, SLOT_COUNT_MAX = 1 << 20 };

enum binding { BINDING_AS_IS, BINDING_NUMA };

const char *const buffer_policies[] = {"hot", "separate", "swapped", "cold", NULL};
const char *const rank_bindings[] = {"as_is", "numa", NULL};

bool ranks_place(struct run *run, struct ranks_asked asked, int rank, int rank_count)
{
    if (asked.node_count && asked.node_count * asked.per_node != rank_count)
        return fail(&run->failure, EXIT_USAGE, "node_count: found %d ranks: allowed: %lld, %lld per node", rank_count,
                    (long long)(asked.node_count * asked.per_node), (long long)asked.per_node);
    if (rank_count % asked.per_node)
        return fail(&run->failure, EXIT_USAGE, "ranks_per_node: found %lld: allowed with %d ranks: a divisor of it",
                    (long long)asked.per_node, rank_count);
    return asked.binding != BINDING_NUMA || run_pin_in_turn(run, rank % (int)asked.per_node);
}

static size_t cache_bytes(void)
{
    long third = sysconf(_SC_LEVEL3_CACHE_SIZE), second = sysconf(_SC_LEVEL2_CACHE_SIZE);
    long found = third > 0 ? third : second;
    return found > 0 ? (size_t)found : CACHE_BYTES_UNKNOWN;
}

void buffers_new(struct run *run, struct buffers *buffers, struct buffers_asked asked)
{
    size_t offset_bytes = (size_t)run_common(run)->buffer_offset_bytes, bytes;
    size_t pages = (2 * offset_bytes + asked.message_bytes + PLACED_PAGE_BYTES - 1) / PLACED_PAGE_BYTES;
    buffers->message_bytes = asked.message_bytes;
    buffers->offset_bytes = offset_bytes;
    buffers->policy = asked.policy;
    buffers->slot_bytes = (pages ? pages : 1) * PLACED_PAGE_BYTES;
    buffers->slot_count = asked.policy == BUFFERS_HOT && asked.shared ? 1 : 2;
    if (asked.policy == BUFFERS_COLD)
        buffers->slot_count += 2 * cache_bytes() / buffers->slot_bytes;
    if (buffers->slot_count > SLOT_COUNT_MAX)
        buffers->slot_count = SLOT_COUNT_MAX;
    bytes = buffers_place(buffers, buffers->slot_count - 1) + asked.message_bytes;
    buffers->memory = run_buffer(run, bytes);
    /* Pages that were never written are all the kernel's one zero page, which stays in the cache. */
    pattern_fill(buffers->memory, bytes, 0, 0, 0);
    buffers->send_slot = 0;
    buffers->receive_slot = buffers->slot_count > 1;
}

void buffers_next(struct buffers *buffers)
{
    if (buffers->policy <= BUFFERS_SEPARATE)
        return;
    buffers->send_slot = (buffers->send_slot + 1) % buffers->slot_count;
    buffers->receive_slot = (buffers->receive_slot + 1) % buffers->slot_count;
}

void pattern_fill(char *to, size_t bytes, unsigned sender, unsigned block, unsigned operation)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (char)pattern(sender, block, operation, i);
}

size_t pattern_check(const char *from, size_t bytes, unsigned sender, unsigned block, unsigned operation)
{
    for (size_t i = 0; i < bytes; i++)
        if ((uint8_t)from[i] != pattern(sender, block, operation, i))
            return i;
    return bytes;
}

void times_new(struct times *times)
{
    times->list = memory_new(MPI_BATCH_MAX, sizeof *times->list);
    /* Touched now: a page that is first written within a batch costs its operation a fault. */
    memset(times->list, 1, MPI_BATCH_MAX * sizeof *times->list);
    times->count = 0;
}

void times_free(struct times *times)
{
    free(times->list);
    times->list = NULL;
}

void times_into(struct times *times, struct run *run)
{
    for (size_t i = 0; i < times->count; i++)
        run_round_trip(run, times->list[i]);
    times->count = 0;
}

void operation_fill(const struct histogram *histogram, struct operation_metrics *metrics)
{
    struct round_trip_metrics found;
    if (!histogram->count)
        return;
    round_trip_fill(histogram, &found);
    metrics->operation_p50_ns = found.round_trip_p50_ns;
    metrics->operation_p90_ns = found.round_trip_p90_ns;
    metrics->operation_p99_ns = found.round_trip_p99_ns;
    metrics->operation_p999_ns = found.round_trip_p999_ns;
    metrics->operation_min_ns = found.round_trip_min_ns;
    metrics->operation_max_ns = found.round_trip_max_ns;
    metrics->operation_mean_ns = found.round_trip_mean_ns;
    metrics->clock_read_ns = found.clock_read_ns;
}

double operations_report(const struct run *run, int64_t message_bytes, struct operation_metrics *metrics)
{
    operation_fill(run->histogram, metrics);
    return message_bytes && metrics->operation_p50_ns > 0 ? (double)message_bytes * 8e9 / metrics->operation_p50_ns
                                                          : (double)NAN;
}
