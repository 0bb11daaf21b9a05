/* See sorting.h.
 *
 *   each rank holds its part of the elements, as the seed says
 *   sort the part | samples of all parts (MPI_Allgather), of which all choose the same splitters
 *                 | to each rank what lies between its splitters (MPI_Alltoall of counts, MPI_Alltoallv)
 *                 | merge what came from each */
#include "applications/sorting.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 64, WORD_BYTES = 8, FEW = 16 };

const char *const keys_names[] = {"uniform", "sorted", "reversed", "few", "skewed", NULL};

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

struct sum sorting_sum(const struct sorting *sorting, const unsigned char *elements, size_t count)
{
    struct sum sum = {count, 0};
    for (size_t i = 0; i < count; i++)
        sum.hash += element_hash(elements + i * sorting->element_bytes, sorting->element_bytes);
    return sum;
}

/* The number that stands in the key of an element, of uniform keys its noise. */
static uint64_t key_value(const struct elements *elements, uint64_t number, uint64_t noise)
{
    uint64_t value = 0;
    switch (elements->keys) {
    case KEYS_SORTED:
        return number;
    case KEYS_REVERSED:
        return elements->count - 1 - number;
    case KEYS_FEW:
        return noise % FEW;
    case KEYS_SKEWED:
        while (noise & 1) { /* one bit of noise after the other: each value is half as frequent as the one before */
            noise >>= 1;
            value++;
        }
        return value;
    case KEYS_UNIFORM:
    default:
        return noise;
    }
}

static void element_fill(unsigned char *element, const struct elements *elements, uint64_t number)
{
    for (size_t at = 0; at < elements->bytes; at += WORD_BYTES) {
        uint64_t word = application_noise(elements->seed, number * (ELEMENT_BYTES_MAX / WORD_BYTES) + at / WORD_BYTES);
        memcpy(element + at, &word, elements->bytes - at < WORD_BYTES ? elements->bytes - at : WORD_BYTES);
    }
    if (elements->keys == KEYS_UNIFORM)
        return;
    uint64_t value = 0;
    memcpy(&value, element, sizeof value);
    value = key_value(elements, number, value);
    memset(element, 0, elements->key_bytes);
    for (size_t i = HEAD_BYTES; i-- > 0; value >>= 8)
        element[i] = (unsigned char)value;
}

static void *touched(size_t count, size_t bytes)
{
    void *memory = memory_pages(count, bytes);
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

void sorting_new(struct sorting *sorting, struct application *application, MPI_Comm communicator,
                 struct elements elements)
{
    size_t whole = elements.count;
    sorting->application = application;
    sorting->communicator = communicator;
    MPI_Comm_rank(communicator, &sorting->rank);
    MPI_Comm_size(communicator, &sorting->size);
    size_t first = application_first(whole, sorting->rank, sorting->size), ranks = (size_t)sorting->size;
    sorting->count = application_first(whole, sorting->rank + 1, sorting->size) - first;
    sorting->element_bytes = elements.bytes;
    sorting->key_bytes = elements.key_bytes;
    sorting->input = touched(sorting->count, sorting->element_bytes);
    sorting->sorted = touched(sorting->count, sorting->element_bytes);
    sorting->keys = touched(sorting->count, sizeof *sorting->keys);
    sorting->samples = touched(ranks * SAMPLES, sizeof *sorting->samples);
    sorting->counts = memory_new(ranks, sizeof(int));
    sorting->places = memory_new(ranks, sizeof(int));
    sorting->receive_counts = memory_new(ranks, sizeof(int));
    sorting->receive_places = memory_new(ranks, sizeof(int));
    capacity_make(sorting, sorting->size > 1 ? sorting->count + sorting->count / 2 : 1);
    MPI_Type_contiguous((int)elements.bytes, MPI_BYTE, &sorting->element);
    MPI_Type_commit(&sorting->element);
    for (size_t i = 0; i < sorting->count; i++)
        element_fill(sorting->input + i * sorting->element_bytes, &elements, first + i);
    sorting->before = sorting_sum(sorting, sorting->input, sorting->count);
}

void sorting_free(struct sorting *sorting)
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
    size_t left = 0;
    for (int rank = 0; rank < sorting->size; rank++)
        left += application_on_my_node(sorting->application, rank) ? 0 : (size_t)sorting->counts[rank];
    sorting->application->given_bytes = (double)(given * sorting->element_bytes);
    sorting->application->left_bytes = (double)(left * sorting->element_bytes);
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

int sorting_run(void *state)
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
