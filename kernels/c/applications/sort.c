/* mpi_sort: a sample sort of elements in memory, over all ranks (sorting.h).
 *
 *   checked, not timed   order within a rank and from rank to rank; no element lost, made or changed
 */
#include "applications/sorting.h"
#include "mpi/transport.h"

#include <stdlib.h>
#include <string.h>

enum { ROOT = 0 };

struct sort_options {
    struct common_options common;
    int64_t element_count, element_bytes, key_bytes, seed, keys, node_count, ranks_per_node, rank_binding, transport,
        alone;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct sort_options, element_count, 262144, 1, 1073741824,
                       "elements to sort, of all ranks together"),
    OPTION_INTEGER_ROW(struct sort_options, element_bytes, 100, 64, ELEMENT_BYTES_MAX,
                       "one element: its key, and what belongs to it"),
    OPTION_INTEGER_ROW(struct sort_options, key_bytes, 10, HEAD_BYTES, KEY_BYTES_MAX,
                       "the first bytes of an element, by which it is sorted"),
    OPTION_INTEGER_ROW(struct sort_options, seed, 1, 0, 1e9,
                       "what the elements are made of: the same seed makes the same ones, on any number of ranks"),
    OPTION_CHOICE_ROW(struct sort_options, keys, keys_names,
                      "uniform: noise; sorted: all in order from the start; reversed: in the opposite order; few: 16 "
                      "different ones; skewed: half of the elements have the same one, a quarter the next, and so on"),
    OPTION_ROWS_RANKS(struct sort_options),
    OPTION_TRANSPORT_ROW(struct sort_options),
    OPTION_BOOLEAN_ROW(struct sort_options, alone, 1,
                       "rank 0 then does the same alone, for speed_up_ratio: it needs room for all elements"),
    OPTION_ROWS_COMMON(struct sort_options),
};

static const struct option_relation relations[] = {{"element_count", RELATION_AT_LEAST, .other = "node_count"}};

struct sort_metrics {
    struct common_metrics common;
    struct operation_metrics operation;
    struct application_metrics application;
    double sorted_eps, sorted_bps, alone_eps, element_imbalance_ratio;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_OPERATION(struct sort_metrics),
    METRIC_ROW(struct sort_metrics, sorted_eps, BETTER_HIGHER,
               "elements sorted per second: element_count over operation_p50_ns"),
    METRIC_ROW(struct sort_metrics, sorted_bps, BETTER_HIGHER, "the same in bits of elements per second"),
    METRIC_ROW(struct sort_metrics, alone_eps, BETTER_NONE, "the same of rank 0 alone: element_count over alone_ns"),
    METRIC_ROW(struct sort_metrics, element_imbalance_ratio, BETTER_LOWER,
               "how many more elements than the mean the rank has that gets most"),
    METRIC_ROWS_APPLICATION(struct sort_metrics),
    METRIC_ROWS_COMMON(struct sort_metrics),
};

struct sort {
    struct application application;
    struct sorting sorting;
};

static struct elements elements_of(const struct sort_options *options)
{
    return (struct elements){(size_t)options->element_count, (size_t)options->element_bytes, (size_t)options->key_bytes,
                             (uint64_t)options->seed, (enum keys)options->keys};
}

/* No element of this rank may be before one of a rank before it: all ranks know each other's first and last. */
static bool ends_check(struct run *run, const struct sorting *sorting)
{
    struct ends {
        unsigned char first[KEY_BYTES_MAX], last[KEY_BYTES_MAX];
        unsigned char is_there;
    } mine = {.is_there = sorting->result_count > 0}, *all = memory_new((size_t)sorting->size, sizeof *all);
    if (mine.is_there) {
        memcpy(mine.first, sorting->result, sorting->key_bytes);
        memcpy(mine.last, sorting->result + (sorting->result_count - 1) * sorting->element_bytes, sorting->key_bytes);
    }
    bool ok = mpi_run_check(
        run, MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, sorting->communicator), "check");
    for (int rank = 0; ok && mine.is_there && rank < sorting->rank; rank++)
        if (all[rank].is_there && memcmp(all[rank].last, mine.first, sorting->key_bytes) > 0)
            run_invalid(run, "the first element at rank %d is before the last one at rank %d", sorting->rank, rank);
    free(all);
    return ok;
}

static bool sort_check(struct run *run, const struct sorting *sorting)
{
    size_t bytes = sorting->element_bytes;
    struct sum after = sorting_sum(sorting, sorting->result, sorting->result_count);
    uint64_t mine[] = {sorting->before.count, sorting->before.hash, after.count, after.hash}, all[4] = {0};
    for (size_t i = 1; i < sorting->result_count; i++)
        if (memcmp(sorting->result + (i - 1) * bytes, sorting->result + i * bytes, sorting->key_bytes) > 0) {
            run_invalid(run, "element %zu at rank %d is before the one that stands before it", i, sorting->rank);
            break;
        }
    if (!ends_check(run, sorting) ||
        !mpi_run_check(run, MPI_Allreduce(mine, all, 4, MPI_UINT64_T, MPI_SUM, sorting->communicator), "check"))
        return false;
    if (all[0] != all[2])
        run_invalid(run, "%llu elements came of %llu", (unsigned long long)all[2], (unsigned long long)all[0]);
    else if (all[1] != all[3])
        run_invalid(run, "the sum over all elements is not what it was: some changed on their way");
    return true;
}

static bool sort_open(struct run *run)
{
    struct sort *state = run->state;
    const struct sort_options *options = run->options;
    struct application *application = &state->application;
    struct ranks_asked asked = {options->node_count, options->ranks_per_node, options->rank_binding};
    if (!application_new(run, application, asked))
        return false;
    if (options->element_count < application->size)
        return fail(&run->failure, EXIT_USAGE, "element_count: found %lld: allowed with %d ranks: %d and more",
                    (long long)options->element_count, application->size, application->size);
    double alone = options->alone && application->rank == ROOT ? 2 : 0; /* times all elements, in and out */
    double received = options->keys >= KEYS_FEW ? 2 : 0;                /* equal keys all go to one rank, in and out */
    double share = (double)application->on_node / application->size;    /* of this node */
    double copies = application->size > 1 ? 5 * share + alone + received : 2 + alone;
    double bytes = (double)(options->element_bytes + (int64_t)sizeof(struct key)) * (double)options->element_count;
    if (!application_fits(run, "element_count", options->element_count, copies * bytes))
        return false;
    sorting_new(&state->sorting, application, application->communicator, elements_of(options));
    return true;
}

static void sort_begin(struct run *run)
{
    application_begin(&((struct sort *)run->state)->application);
}

static enum step sort_step(struct run *run)
{
    struct sort *state = run->state;
    struct sorting *sorting = &state->sorting;
    memset(sorting->received, 0, sorting->capacity * sorting->element_bytes); /* nothing of the operation before */
    if (!application_operate(run, &state->application, sorting_run, sorting) || !sort_check(run, sorting))
        return STEP_FAILED;
    return STEP_OPERATION;
}

static bool sort_batch_end(struct run *run)
{
    return application_batch_end(run, &((struct sort *)run->state)->application);
}

static void sort_alone(struct run *run, struct sort *state)
{
    const struct sort_options *options = run->options;
    struct sorting *whole = NULL;
    if (state->application.rank == ROOT) {
        whole = memory_new(1, sizeof *whole);
        sorting_new(whole, &state->application, MPI_COMM_SELF, elements_of(options));
    }
    application_alone(&state->application, options->common.duration_s, sorting_run, whole);
    if (whole) {
        sort_check(run, whole);
        sorting_free(whole);
        free(whole);
    }
}

/* Every rank is here: none came this far without all others. */
static void sort_report(struct run *run)
{
    struct sort *state = run->state;
    const struct sort_options *options = run->options;
    struct sort_metrics *metrics = run->metrics;
    double count = (double)options->element_count, ranks = state->application.size;
    double given_bytes = state->application.given_bytes, moved_bytes = 0;
    double mine = (double)state->sorting.result_count, most = 0;
    MPI_Reduce(&given_bytes, &moved_bytes, 1, MPI_DOUBLE, MPI_SUM, ROOT, state->application.communicator);
    MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, ROOT, state->application.communicator);
    if (options->alone)
        sort_alone(run, state);
    application_report(run, &state->application, moved_bytes, &metrics->operation, &metrics->application);
    if (state->application.rank != ROOT)
        return;
    metrics->sorted_eps = count / (metrics->operation.operation_p50_ns / NS_PER_S);
    metrics->sorted_bps = 8 * (double)options->element_bytes * metrics->sorted_eps;
    metrics->alone_eps = count / (metrics->application.alone_ns / NS_PER_S);
    metrics->element_imbalance_ratio = most / (count / ranks) - 1;
}

static void sort_close(struct run *run)
{
    struct sort *state = run->state;
    sorting_free(&state->sorting);
    application_free(&state->application);
}

const struct kernel kernel_mpi_sort = {
    .name = "mpi_sort",
    .summary = "sort of elements in memory over all ranks, one or more per node: an application that needs the link",
    .method =
        "Each rank holds its part of elements of 64 to 256 bytes, made from the seed. A sample sort: ranks sort "
        "their parts by the key, gather 64 samples of each, choose the same splitters from them, give each rank what "
        "lies between its two (MPI_Alltoallv), and merge what came; one thread per rank, qsort() of the C library. All "
        "ranks leave a barrier that is not timed; one sample is the longest time of any rank. Calls of MPI within are "
        "timed at every rank. Every sort is checked afterwards, not timed: order within and between ranks, count, and "
        "a sum over all elements that does not depend on their order. Then rank 0 sorts the same elements alone. Keys "
        "that are noise divide evenly. Equal keys all go to one rank, as with few or skewed ones; sorted ones leave "
        "hardly any element to move, reversed ones move nearly all.",
    .size_option = "element_bytes",
    .options = OPTION_TABLE_RELATED(option_rows, struct sort_options, NULL, relations),
    .metrics = METRIC_TABLE(metric_rows, struct sort_metrics),
    .state_bytes = sizeof(struct sort),
    .round_trips = true,
    .many_ranks = true,
    .open = sort_open,
    .begin = sort_begin,
    .step = sort_step,
    .batch_end = sort_batch_end,
    .report = sort_report,
    .close = sort_close,
};
