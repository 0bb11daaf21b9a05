/* mpi_sort: a sample sort of elements in memory, over all ranks.
 *
 *   each rank holds its part of the elements, as the seed says
 *   sort the part | samples of all parts (MPI_Allgather), of which all choose the same splitters
 *                 | to each rank what lies between its splitters (MPI_Alltoall of counts, MPI_Alltoallv)
 *                 | merge what came from each
 *   checked, not timed   order within a rank and from rank to rank; no element lost, made or changed
 */
#include "applications/application.h"
#include "mpi/transport.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROOT = 0, SAMPLES = 64, HEAD_BYTES = 8, KEY_BYTES_MAX = 10, ELEMENT_BYTES_MAX = 256, WORD_BYTES = 8 };

struct sort_options {
    struct common_options common;
    int64_t element_count, element_bytes, key_bytes, seed, node_count, transport, alone;
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
    OPTION_INTEGER_ROW(struct sort_options, node_count, 0, 0, 65536,
                       "ranks, one per node; 0: as many as there are nodes"),
    OPTION_TRANSPORT_ROW(struct sort_options),
    OPTION_BOOLEAN_ROW(struct sort_options, alone, 1,
                       "rank 0 then does the same alone, for speed_up_ratio: it needs room for all elements"),
    OPTION_ROWS_COMMON(struct sort_options),
};

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

/* What is compared and moved in place of an element. */
struct key {
    uint64_t head;  /* the first eight bytes of the key, the first one the most significant */
    uint32_t tail;  /* those after it */
    uint32_t index; /* of the element */
};

/* What must not change, whatever the order. */
struct sum {
    uint64_t count, hash;
};

/* One sort, over all ranks of a communicator: all of them, or one. */
struct sorting {
    struct application *application;
    MPI_Comm communicator;
    MPI_Datatype element;
    int rank, size;
    size_t element_bytes, key_bytes, count, capacity, result_count;
    unsigned char *input, *sorted, *received, *output, *result; /* result: one of the two before it */
    struct key *keys, *runs, *merged, *samples;
    int *counts, *places, *receive_counts, *receive_places;
    struct sum before;
};

struct sort {
    struct application application;
    struct sorting sorting;
};

static uint64_t element_hash(const unsigned char *element, size_t bytes)
{
    uint64_t hash = bytes;
    for (size_t at = 0; at < bytes; at += WORD_BYTES) {
        uint64_t word = 0;
        memcpy(&word, element + at, bytes - at < WORD_BYTES ? bytes - at : WORD_BYTES);
        hash = application_noise(hash ^ word, at);
    }
    return hash;
}

static struct sum sum_of(const struct sorting *sorting, const unsigned char *elements, size_t count)
{
    struct sum sum = {count, 0};
    for (size_t i = 0; i < count; i++)
        sum.hash += element_hash(elements + i * sorting->element_bytes, sorting->element_bytes);
    return sum;
}

static void element_fill(unsigned char *element, size_t bytes, uint64_t seed, uint64_t number)
{
    for (size_t at = 0; at < bytes; at += WORD_BYTES) {
        uint64_t word = application_noise(seed, number * (ELEMENT_BYTES_MAX / WORD_BYTES) + at / WORD_BYTES);
        memcpy(element + at, &word, bytes - at < WORD_BYTES ? bytes - at : WORD_BYTES);
    }
}

static void *touched(size_t count, size_t bytes)
{
    void *memory = memory_new(count ? count : 1, bytes);
    memset(memory, 1, (count ? count : 1) * bytes); /* now: no page fault is timed */
    return memory;
}

/* Room for what a rank receives. */
static void capacity_make(struct sorting *sorting, size_t capacity)
{
    free(sorting->received);
    free(sorting->output);
    free(sorting->runs);
    free(sorting->merged);
    sorting->capacity = capacity;
    sorting->received = touched(capacity, sorting->element_bytes);
    sorting->output = touched(capacity, sorting->element_bytes);
    sorting->runs = touched(capacity, sizeof *sorting->runs);
    sorting->merged = touched(capacity, sizeof *sorting->merged);
}

static void sorting_new(struct sorting *sorting, struct application *application, MPI_Comm communicator,
                        const struct sort_options *options)
{
    size_t whole = (size_t)options->element_count;
    sorting->application = application;
    sorting->communicator = communicator;
    MPI_Comm_rank(communicator, &sorting->rank);
    MPI_Comm_size(communicator, &sorting->size);
    size_t first = application_first(whole, sorting->rank, sorting->size), ranks = (size_t)sorting->size;
    sorting->count = application_first(whole, sorting->rank + 1, sorting->size) - first;
    sorting->element_bytes = (size_t)options->element_bytes;
    sorting->key_bytes = (size_t)options->key_bytes;
    sorting->input = touched(sorting->count, sorting->element_bytes);
    sorting->sorted = touched(sorting->count, sorting->element_bytes);
    sorting->keys = touched(sorting->count, sizeof *sorting->keys);
    sorting->samples = touched(ranks * SAMPLES, sizeof *sorting->samples);
    sorting->counts = memory_new(ranks, sizeof(int));
    sorting->places = memory_new(ranks, sizeof(int));
    sorting->receive_counts = memory_new(ranks, sizeof(int));
    sorting->receive_places = memory_new(ranks, sizeof(int));
    capacity_make(sorting, sorting->size > 1 ? sorting->count + sorting->count / 2 : 1);
    MPI_Type_contiguous((int)options->element_bytes, MPI_BYTE, &sorting->element);
    MPI_Type_commit(&sorting->element);
    for (size_t i = 0; i < sorting->count; i++)
        element_fill(sorting->input + i * sorting->element_bytes, sorting->element_bytes, (uint64_t)options->seed,
                     first + i);
    sorting->before = sum_of(sorting, sorting->input, sorting->count);
}

static void sorting_free(struct sorting *sorting)
{
    if (!sorting->input)
        return;
    free(sorting->input);
    free(sorting->sorted);
    free(sorting->received);
    free(sorting->output);
    free(sorting->keys);
    free(sorting->runs);
    free(sorting->merged);
    free(sorting->samples);
    free(sorting->counts);
    free(sorting->places);
    free(sorting->receive_counts);
    free(sorting->receive_places);
    MPI_Type_free(&sorting->element);
}

static struct key key_of(const struct sorting *sorting, const unsigned char *elements, size_t index)
{
    const unsigned char *element = elements + index * sorting->element_bytes;
    struct key key = {0, 0, (uint32_t)index};
    for (size_t i = 0; i < HEAD_BYTES; i++)
        key.head = key.head << 8 | element[i];
    for (size_t i = HEAD_BYTES; i < sorting->key_bytes; i++)
        key.tail = key.tail << 8 | element[i];
    return key;
}

static int key_compare(const void *left, const void *right)
{
    const struct key *a = left, *b = right;
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    if (a->tail != b->tail)
        return a->tail < b->tail ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* The elements in the order of their keys. */
static void gather(const struct sorting *sorting, unsigned char *to, const unsigned char *from, const struct key *keys,
                   size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * sorting->element_bytes, from + keys[i].index * sorting->element_bytes, sorting->element_bytes);
}

static void sort_part(struct sorting *sorting)
{
    for (size_t i = 0; i < sorting->count; i++)
        sorting->keys[i] = key_of(sorting, sorting->input, i);
    qsort(sorting->keys, sorting->count, sizeof *sorting->keys, key_compare);
    gather(sorting, sorting->sorted, sorting->input, sorting->keys, sorting->count);
}

/* The first of the sorted keys that is not before the splitter. */
static size_t key_place(const struct sorting *sorting, const struct key *splitter)
{
    size_t low = 0, high = sorting->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (key_compare(&sorting->keys[middle], splitter) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many elements go to each rank. Samples have index 0, so equal keys are not before a splitter, on any rank. */
static int choose_parts(struct sorting *sorting)
{
    struct key mine[SAMPLES];
    size_t ranks = (size_t)sorting->size, begin = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        mine[i] = sorting->keys[(2 * i + 1) * sorting->count / (2 * SAMPLES)];
        mine[i].index = 0;
    }
    uint64_t since_ns = clock_now_ns();
    int rc = MPI_Allgather(mine, sizeof mine, MPI_BYTE, sorting->samples, sizeof mine, MPI_BYTE, sorting->communicator);
    application_called(sorting->application, since_ns);
    qsort(sorting->samples, ranks * SAMPLES, sizeof *sorting->samples, key_compare);
    for (size_t rank = 0; rank < ranks; rank++) {
        bool is_last = rank + 1 == ranks;
        size_t end = is_last ? sorting->count : key_place(sorting, &sorting->samples[(rank + 1) * SAMPLES]);
        sorting->places[rank] = (int)begin;
        sorting->counts[rank] = (int)(end - begin);
        begin = end;
    }
    return rc;
}

static int exchange(struct sorting *sorting)
{
    size_t total = 0;
    uint64_t since_ns = clock_now_ns();
    int rc = MPI_Alltoall(sorting->counts, 1, MPI_INT, sorting->receive_counts, 1, MPI_INT, sorting->communicator);
    application_called(sorting->application, since_ns);
    for (int rank = 0; rank < sorting->size; rank++) {
        sorting->receive_places[rank] = (int)total;
        total += (size_t)sorting->receive_counts[rank];
    }
    if (rc != MPI_SUCCESS)
        return rc;
    if (total > sorting->capacity)
        capacity_make(sorting, total);
    sorting->result_count = total;
    since_ns = clock_now_ns();
    rc = MPI_Alltoallv(sorting->sorted, sorting->counts, sorting->places, sorting->element, sorting->received,
                       sorting->receive_counts, sorting->receive_places, sorting->element, sorting->communicator);
    application_called(sorting->application, since_ns);
    size_t given = sorting->count - (size_t)sorting->counts[sorting->rank];
    sorting->application->given_bytes = (double)(given * sorting->element_bytes);
    return rc;
}

/* Of neighbouring runs, one. */
static void merge_two(const struct key *from, size_t begin, size_t middle, size_t end, struct key *to)
{
    size_t left = begin, right = middle;
    for (size_t i = begin; i < end; i++) {
        bool is_left = right == end || (left < middle && key_compare(&from[left], &from[right]) < 0);
        to[i] = from[is_left ? left++ : right++];
    }
}

/* What came from each rank is a run; pairs of runs are merged until one is left. */
static void merge(struct sorting *sorting)
{
    size_t total = sorting->result_count, ranks = (size_t)sorting->size;
    for (size_t i = 0; i < total; i++)
        sorting->runs[i] = key_of(sorting, sorting->received, i);
    for (size_t width = 1; width < ranks; width *= 2) {
        for (size_t rank = 0; rank < ranks; rank += 2 * width) {
            size_t bounds[3];
            for (size_t i = 0; i < 3; i++) {
                size_t at = rank + i * width;
                bounds[i] = at < ranks ? (size_t)sorting->receive_places[at] : total;
            }
            merge_two(sorting->runs, bounds[0], bounds[1], bounds[2], sorting->merged);
        }
        struct key *merged = sorting->merged;
        sorting->merged = sorting->runs;
        sorting->runs = merged;
    }
    gather(sorting, sorting->output, sorting->received, sorting->runs, total);
}

static int sort_all(void *state)
{
    struct sorting *sorting = state;
    sort_part(sorting);
    sorting->result = sorting->sorted;
    sorting->result_count = sorting->count;
    if (sorting->size == 1)
        return MPI_SUCCESS;
    int rc = choose_parts(sorting);
    if (rc == MPI_SUCCESS)
        rc = exchange(sorting);
    if (rc == MPI_SUCCESS)
        merge(sorting);
    sorting->result = sorting->output;
    return rc;
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
    struct sum after = sum_of(sorting, sorting->result, sorting->result_count);
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
    if (!application_new(run, application, options->node_count))
        return false;
    if (options->element_count < application->size)
        return fail(&run->failure, EXIT_USAGE, "element_count: found %lld: allowed with %d ranks: %d and more",
                    (long long)options->element_count, application->size, application->size);
    double alone = options->alone && application->rank == ROOT ? 2 : 0; /* times all elements, in and out */
    double copies = application->size > 1 ? 5.0 / application->size + alone : 2 + alone;
    double bytes = (double)(options->element_bytes + (int64_t)sizeof(struct key)) * (double)options->element_count;
    if (!application_fits(run, "element_count", options->element_count, copies * bytes))
        return false;
    sorting_new(&state->sorting, application, application->communicator, options);
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
    if (!application_operate(run, &state->application, sort_all, sorting) || !sort_check(run, sorting))
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
        sorting_new(whole, &state->application, MPI_COMM_SELF, options);
    }
    application_alone(&state->application, options->common.duration_s, sort_all, whole);
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
    .summary = "sort of elements in memory over all ranks, one rank per node: an application that needs the link",
    .method =
        "Each rank holds its part of elements of 64 to 256 bytes, made from the seed. A sample sort: ranks sort "
        "their parts by the key, gather 64 samples of each, choose the same splitters from them, give each rank what "
        "lies between its two (MPI_Alltoallv), and merge what came; one thread per rank, qsort() of the C library. All "
        "ranks leave a barrier that is not timed; one sample is the longest time of any rank. Calls of MPI within are "
        "timed at every rank. Every sort is checked afterwards, not timed: order within and between ranks, count, and "
        "a sum over all elements that does not depend on their order. Then rank 0 sorts the same elements alone.",
    .size_option = "element_bytes",
    .options = OPTION_TABLE(option_rows, struct sort_options),
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
