/* mpi_collective: one collective operation of all ranks. One table: what each calls, and what must have come.
 *
 *   each operation   barrier (not timed) | stamp, the operation, stamp    at every rank
 *     start: window  rank 0 names a moment | all wait for it by their clock | the operation, stamp
 *   each batch       the longest time of any rank, operation by operation, goes to rank 0; with windows the clocks are
 *                    compared again now and then
 */
#include "mpi/collectives.h"

#include "mpi/clocks.h"
#include "mpi/exchange.h"
#include "mpi/mpi_run.h"
#include "mpi/transport.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROOT = 0, WORD_BYTES = (int)sizeof(int32_t), BATCHES_PER_POINT = 10 };
enum start { START_BARRIER, START_WINDOW };

static const char *const starts[] = {"barrier", "window", NULL};
/* In place of a time; the maximum over ranks keeps it. Not UINT64_MAX: MPICH 4.0.2 compares MPI_UINT64_T as signed. */
static const uint64_t window_missed = INT64_MAX;
static const uint64_t lead_min_ns = 20000, lead_first_ns = 200000, lead_max_ns = 50000000;

struct collective_options {
    struct common_options common;
    int64_t operation, message_bytes, node_count, ranks_per_node, rank_binding, transport, start, validate, buffers,
        window_count;
};

static const struct option_row option_rows[] = {
    OPTION_CHOICE_ROW(struct collective_options, operation, collective_names, "the operation, as MPI calls it"),
    OPTION_INTEGER_ROW(struct collective_options, message_bytes, 8, 0, 268435456,
                       "bytes that one rank gives one other (of reductions: a multiple of 4; barrier has none)"),
    OPTION_ROWS_RANKS(struct collective_options),
    OPTION_TRANSPORT_ROW(struct collective_options),
    OPTION_CHOICE_ROW(struct collective_options, start, starts,
                      "how ranks begin an operation together: after a barrier, or at a moment by synchronised clocks"),
    OPTION_BOOLEAN_ROW(struct collective_options, validate, 0, "check every byte that came, of every operation"),
    OPTION_ROWS_BUFFERS(struct collective_options),
    OPTION_INTEGER_ROW(struct collective_options, window_count, 64, 1, COLLECTIVE_WINDOW_MAX,
                       "of multi_pair: messages of each pair under way before the answer"),
    OPTION_ROWS_COMMON(struct collective_options),
};

/* The words are those of the rows that reduce (collective_rows.c). */
static const struct option_relation relations[] = {
    {"message_bytes", RELATION_MULTIPLE, .factor = WORD_BYTES, .when = "operation",
     .when_words = "reduce allreduce reduce_scatter scan ireduce iallreduce ireduce_scatter iscan"},
    {"message_bytes", RELATION_PRODUCT, .other = "node_count", .factor = INT_MAX}};

struct collective_metrics {
    struct common_metrics common;
    struct operation_metrics operation;
    double fastest_rank_p50_ns, slowest_rank_p50_ns, rank_mean_ns, fastest_rank_mean_ns, slowest_rank_mean_ns,
        operation_count, rank_count, overlap_ratio, clock_offset_ns, clock_drift_ratio, clock_error_ns,
        window_missed_count, pair_count, throughput_bps, message_rate_pps;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_OPERATION(struct collective_metrics),
    METRIC_ROW(struct collective_metrics, fastest_rank_p50_ns, BETTER_NONE,
               "median at the rank that is done first: one that only gives may leave before the others have taken"),
    METRIC_ROW(struct collective_metrics, slowest_rank_p50_ns, BETTER_NONE, "median at the rank that is done last"),
    METRIC_ROW(
        struct collective_metrics, rank_mean_ns, BETTER_NONE,
        "mean of all ranks and operations, each rank from its own start: what IMB calls t_avg and OSU the average "
        "latency"),
    METRIC_ROW(struct collective_metrics, fastest_rank_mean_ns, BETTER_NONE,
               "the least mean of any rank: what IMB calls t_min and OSU the min latency"),
    METRIC_ROW(struct collective_metrics, slowest_rank_mean_ns, BETTER_NONE,
               "the largest mean of any rank: what IMB calls t_max and OSU the max latency"),
    METRIC_ROW(struct collective_metrics, operation_count, BETTER_NONE, "operations measured"),
    METRIC_ROW(struct collective_metrics, rank_count, BETTER_NONE, "ranks that took part"),
    METRIC_ROW(struct collective_metrics, overlap_ratio, BETTER_HIGHER,
               "of non-blocking operations: share of the operation that went on while rank 0 computed for as long"),
    METRIC_ROW(struct collective_metrics, clock_offset_ns, BETTER_NONE,
               "start window: of the rank whose clock is furthest from rank 0's, its clock minus rank 0's"),
    METRIC_ROW(struct collective_metrics, clock_drift_ratio, BETTER_NONE,
               "start window: how much faster that rank's clock runs than rank 0's (1e-6: a us per second)"),
    METRIC_ROW(struct collective_metrics, clock_error_ns, BETTER_LOWER,
               "start window: the offset of any rank is known within this: half the fastest exchange of times with "
               "rank 0, and the farthest that a fast exchange lies from the line through all of them"),
    METRIC_ROW(struct collective_metrics, window_missed_count, BETTER_NONE,
               "start window: operations that a rank came too late for; they are not measured, and repeated"),
    METRIC_ROW(struct collective_metrics, pair_count, BETTER_NONE, "of multi_pair: pairs that sent at once"),
    METRIC_ROW(struct collective_metrics, throughput_bps, BETTER_HIGHER,
               "of multi_pair: bits of the messages of all pairs over the time until the last pair was done; left out "
               "when message_bytes is 0"),
    METRIC_ROW(struct collective_metrics, message_rate_pps, BETTER_HIGHER,
               "of multi_pair: messages per second of all pairs together"),
    METRIC_ROWS_COMMON(struct collective_metrics),
};

struct collective {
    struct collective_call call;
    struct times times;
    struct histogram own; /* of this rank */
    const struct collective_row *row;
    unsigned operation_no;
    bool validate;
    double overlap_sum;
    uint64_t overlap_count;
    enum start start;
    struct clocks clocks;
    uint64_t lead_ns; /* rank 0: how far ahead it names a moment */
    uint64_t missed_count, batch_count;
};

static bool collective_refuse(struct run *run, const struct collective_options *options, int rank_count)
{
    const struct collective_row *row = &collective_rows[options->operation];
    if (rank_count < 2)
        return fail(&run->failure, EXIT_USAGE, "found 1 rank: allowed for %s: 2 and more", row->name);
    if (options->message_bytes * rank_count > INT_MAX)
        return fail(&run->failure, EXIT_USAGE, "message_bytes: found %lld: allowed with %d ranks: 0 to %d",
                    (long long)options->message_bytes, rank_count, INT_MAX / rank_count);
    return true;
}

static bool collective_open(struct run *run)
{
    struct collective *state = run->state;
    const struct collective_options *options = run->options;
    struct collective_call *call = &state->call;
    call->communicator = mpi_run_communicator(run);
    MPI_Comm_rank(call->communicator, &call->rank);
    MPI_Comm_size(call->communicator, &call->size);
    struct ranks_asked asked = {options->node_count, options->ranks_per_node, options->rank_binding};
    if (!collective_refuse(run, options, call->size) || !ranks_place(run, asked, call->rank, call->size))
        return false;
    state->row = &collective_rows[options->operation];
    state->validate = options->validate;
    state->start = (enum start)options->start;
    state->lead_ns = lead_first_ns;
    call->window_count = (int)options->window_count;
    collective_call_new(
        run, call, (struct buffers_asked){(size_t)options->message_bytes, (enum buffer_policy)options->buffers, false});
    times_new(&state->times);
    return true;
}

static void collective_begin(struct run *run)
{
    struct collective *state = run->state;
    state->times.count = 0;
    state->own = (struct histogram){0};
    state->overlap_sum = 0;
    state->overlap_count = 0;
    state->missed_count = 0;
}

/* Computes for so long, without a call of MPI. */
static void compute(uint64_t for_ns)
{
    uint64_t until_ns = clock_now_ns() + for_ns;
    while (clock_now_ns() < until_ns) { /* a clock read is work as good as any */
    }
}

/* After the timed operation of `pure_ns`: the same again with as much computing inside, as IMB and OSU do. */
static bool overlap(struct run *run, struct collective *state, uint64_t pure_ns)
{
    MPI_Request request;
    if (!mpi_run_check(run, MPI_Barrier(state->call.communicator), "barrier"))
        return false;
    uint64_t start_ns = clock_now_ns();
    int rc = state->row->start(&state->call, &request);
    compute(pure_ns);
    if (rc == MPI_SUCCESS)
        rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
    double both_ns = (double)(clock_now_ns() - start_ns), alone_ns = (double)(pure_ns ? pure_ns : 1);
    double hidden = 1 - (both_ns - alone_ns) / alone_ns;
    if (!run->settling && run->phase == PHASE_MEASURE) {
        state->overlap_sum += hidden < 0 ? 0 : hidden > 1 ? 1 : hidden;
        state->overlap_count++;
    }
    return mpi_run_check(run, rc, state->row->name);
}

static int operate(struct collective *state)
{
    MPI_Request request;
    if (!state->row->start)
        return state->row->call(&state->call);
    int rc = state->row->start(&state->call, &request);
    return rc == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
}

/* All ranks begin together, as exactly as the barrier lets them go or their clocks agree. Sets from when this rank's
 * time counts, and whether it came too late. */
static int begin_together(struct collective *state, uint64_t *start_ns, bool *missed)
{
    int rc = MPI_SUCCESS;
    *missed = false;
    if (state->start == START_BARRIER) {
        rc = MPI_Barrier(state->call.communicator);
        *start_ns = clock_now_ns();
        return rc;
    }
    if (!state->clocks.size) /* the first operation is never measured */
        rc = clocks_start(&state->clocks, state->call.communicator);
    uint64_t moment_ns = clock_now_ns() + state->lead_ns;
    if (rc == MPI_SUCCESS)
        rc = MPI_Bcast(&moment_ns, 1, MPI_UINT64_T, ROOT, state->call.communicator);
    *start_ns = clocks_local(&state->clocks, moment_ns);
    *missed = clock_now_ns() > *start_ns;
    while (rc == MPI_SUCCESS && clock_now_ns() < *start_ns) { /* a rank that sleeps would come late */
    }
    return rc;
}

static enum step collective_step(struct run *run)
{
    struct collective *state = run->state;
    uint64_t start_ns = 0;
    bool missed = false;
    if (state->validate)
        collective_fill(&state->call, state->row, ++state->operation_no);
    if (!mpi_run_check(run, begin_together(state, &start_ns, &missed), "beginning together"))
        return STEP_FAILED;
    int rc = operate(state);
    run->now_ns = clock_now_ns();
    if (!mpi_run_check(run, rc, state->row->name))
        return STEP_FAILED;
    if (!run->settling)
        state->times.list[state->times.count++] = missed ? window_missed : run->now_ns - start_ns;
    if (state->validate)
        collective_check(run, &state->call, state->row, state->operation_no);
    if (state->row->start && !overlap(run, state, run->now_ns - start_ns))
        return STEP_FAILED;
    collective_call_next(&state->call);
    return STEP_OPERATION;
}

/* At rank 0: leaves out what a rank came too late for, and counts it as not done, so that it is repeated. */
static void windows_missed(struct run *run, struct collective *state)
{
    struct times *times = &state->times;
    size_t kept = 0, missed;
    for (size_t i = 0; i < times->count; i++)
        if (times->list[i] != window_missed)
            times->list[kept++] = times->list[i];
    missed = times->count - kept;
    if (20 * missed > times->count) /* more than one in twenty: later */
        state->lead_ns = state->lead_ns > lead_max_ns / 2 ? lead_max_ns : 2 * state->lead_ns;
    else if (!missed && state->lead_ns > lead_min_ns)
        state->lead_ns -= state->lead_ns / 20;
    state->missed_count += missed;
    run->operation_count -= missed;
    times->count = kept;
}

static bool collective_batch_end(struct run *run)
{
    struct collective *state = run->state;
    struct times *times = &state->times;
    bool is_root = state->call.rank == ROOT;
    for (size_t i = 0; i < times->count; i++)
        if (times->list[i] != window_missed)
            histogram_add(&state->own, times->list[i]);
    int rc = MPI_Reduce(is_root ? MPI_IN_PLACE : times->list, is_root ? times->list : NULL, (int)times->count,
                        MPI_UINT64_T, MPI_MAX, ROOT, state->call.communicator);
    if (!mpi_run_check(run, rc, "times of the ranks"))
        return false;
    if (is_root && state->start == START_WINDOW)
        windows_missed(run, state);
    if (is_root)
        times_into(times, run);
    times->count = 0;
    if (state->start == START_WINDOW && ++state->batch_count % BATCHES_PER_POINT == 0)
        return mpi_run_check(run, clocks_point(&state->clocks), "clocks");
    return true;
}

/* What the pairs sent together: a sample is the time until the last of them was done. */
static void pairs_report(const struct run *run, const struct collective *state, struct collective_metrics *metrics)
{
    const struct collective_options *options = run->options;
    double messages = (double)(state->call.size / 2) * (double)options->window_count * (double)run->operation_count;
    metrics->pair_count = state->call.size / 2;
    metrics->message_rate_pps = messages * 1e9 / run->histogram->sum_ns;
    if (options->message_bytes)
        metrics->throughput_bps = metrics->message_rate_pps * 8 * (double)options->message_bytes;
}

/* Every rank is here: none came this far without all others. */
static void collective_report(struct run *run)
{
    struct collective *state = run->state;
    struct collective_metrics *metrics = run->metrics;
    double mine = state->own.count ? histogram_quantile_ns(&state->own, 0.5) : 0, least = 0, most = 0;
    double mean_ns = state->own.count ? state->own.sum_ns / (double)state->own.count : 0, means_ns = 0,
           mean_least_ns = 0, mean_most_ns = 0;
    MPI_Reduce(&mean_ns, &means_ns, 1, MPI_DOUBLE, MPI_SUM, ROOT, state->call.communicator);
    MPI_Reduce(&mean_ns, &mean_least_ns, 1, MPI_DOUBLE, MPI_MIN, ROOT, state->call.communicator);
    MPI_Reduce(&mean_ns, &mean_most_ns, 1, MPI_DOUBLE, MPI_MAX, ROOT, state->call.communicator);
    MPI_Reduce(&mine, &least, 1, MPI_DOUBLE, MPI_MIN, ROOT, state->call.communicator);
    MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, ROOT, state->call.communicator);
    if (state->clocks.size) {
        double offset_ns, drift_ratio, error_ns;
        clocks_gather(&state->clocks, &offset_ns, &drift_ratio, &error_ns);
        if (state->call.rank == ROOT) {
            metrics->clock_offset_ns = offset_ns;
            metrics->clock_drift_ratio = drift_ratio;
            metrics->clock_error_ns = error_ns;
            metrics->window_missed_count = (double)state->missed_count;
        }
    }
    if (state->call.rank != ROOT)
        return;
    if (!run->histogram->count) {
        run_invalid(run, "no operation was measured: a rank came too late for each of %llu",
                    (unsigned long long)state->missed_count);
        return;
    }
    operation_fill(run->histogram, &metrics->operation);
    metrics->fastest_rank_p50_ns = least;
    metrics->slowest_rank_p50_ns = most;
    metrics->rank_mean_ns = means_ns / state->call.size;
    metrics->fastest_rank_mean_ns = mean_least_ns;
    metrics->slowest_rank_mean_ns = mean_most_ns;
    metrics->operation_count = (double)run->operation_count;
    metrics->rank_count = state->call.size;
    if (state->row->pairs)
        pairs_report(run, state, metrics);
    if (state->overlap_count)
        metrics->overlap_ratio = state->overlap_sum / (double)state->overlap_count;
}

static void collective_close(struct run *run)
{
    struct collective *state = run->state;
    collective_call_free(&state->call);
    times_free(&state->times);
}

const struct kernel kernel_mpi_collective = {
    .name = "mpi_collective",
    .summary = "one collective operation of MPI over all ranks, one or more per node",
    .method =
        "All ranks leave a barrier that is not timed, then each stamps the time before and after the operation: one "
        "sample is the longest time of any rank. With start: window rank 0 names a moment instead, for which all wait "
        "by their clocks, and a sample reaches from that moment to the end at the last rank; the clocks are compared "
        "by exchanges of the time with rank 0 throughout. Ranks agree on the number of operations of each batch of "
        "some 10 ms "
        "beforehand; times are gathered after the batch. Data lie in the same places each time. message_bytes is what "
        "one rank gives one other, so alltoall and gather move more with more ranks.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE_RELATED(option_rows, struct collective_options, NULL, relations),
    .metrics = METRIC_TABLE(metric_rows, struct collective_metrics),
    .state_bytes = sizeof(struct collective),
    .round_trips = true,
    .many_ranks = true,
    .open = collective_open,
    .begin = collective_begin,
    .step = collective_step,
    .batch_end = collective_batch_end,
    .report = collective_report,
    .close = collective_close,
};
