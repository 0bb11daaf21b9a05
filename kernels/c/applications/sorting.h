/* A sample sort of elements over all ranks of a communicator. */
#ifndef HPCQ_SORTING_H
#define HPCQ_SORTING_H

#include "applications/application.h"

enum { HEAD_BYTES = 8, KEY_BYTES_MAX = 10, ELEMENT_BYTES_MAX = 256 };

/* uniform: noise; sorted, reversed: all in order from the start, or in the opposite order; few: 16 different ones, all
 * equally many; skewed: half of the elements have the same one, a quarter the next, and so on. */
enum keys { KEYS_UNIFORM, KEYS_SORTED, KEYS_REVERSED, KEYS_FEW, KEYS_SKEWED };
extern const char *const keys_names[]; /* NULL-terminated */

/* What is sorted, by all ranks together. */
struct elements {
    size_t count, bytes, key_bytes; /* bytes: of one; its first key_bytes are its key */
    uint64_t seed;
    enum keys keys;
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

/* Makes this rank's part of the elements. */
void sorting_new(struct sorting *sorting, struct application *application, MPI_Comm communicator,
                 struct elements elements);
void sorting_free(struct sorting *sorting);
/* Sorts: `state` is the sorting. Returns what MPI does. */
int sorting_run(void *state);
struct sum sorting_sum(const struct sorting *sorting, const unsigned char *elements, size_t count);

#endif
