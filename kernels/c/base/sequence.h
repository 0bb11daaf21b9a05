/* What arrived of a numbered stream: first arrivals, duplicates and reordered ones, told apart by a sliding bitmap. */
#ifndef HPCQ_SEQUENCE_H
#define HPCQ_SEQUENCE_H

#include <stdint.h>

enum { SEQUENCE_WINDOW = 1 << 20 }; /* numbers behind the highest that are told apart; older ones count as reordered */

struct sequence {
    uint64_t unique_count, reordered_count, duplicate_count;
    uint64_t next; /* one above the highest number seen */
    uint64_t bits[SEQUENCE_WINDOW / 64];
};

void sequence_clear(struct sequence *sequence);
/* Numbers count from 0. Returns 1 for a first arrival, 0 for a duplicate. */
int sequence_add(struct sequence *sequence, uint64_t number);

#endif
