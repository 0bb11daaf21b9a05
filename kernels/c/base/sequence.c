/* See sequence.h. */
#include "base/sequence.h"

#include <string.h>

void sequence_clear(struct sequence *sequence)
{
    memset(sequence, 0, sizeof *sequence);
}

static uint64_t *sequence_word(struct sequence *sequence, uint64_t number, uint64_t *bit)
{
    *bit = (uint64_t)1 << (number % 64);
    return &sequence->bits[number / 64 % (SEQUENCE_WINDOW / 64)];
}

/* Numbers next..number come into the window: their bits are cleared, word by word, at most the whole window. */
static void sequence_advance(struct sequence *sequence, uint64_t number)
{
    uint64_t bit;
    if (number - sequence->next >= SEQUENCE_WINDOW) {
        memset(sequence->bits, 0, sizeof sequence->bits);
    } else {
        for (uint64_t n = sequence->next; n <= number; n++)
            *sequence_word(sequence, n, &bit) &= ~((uint64_t)1 << (n % 64));
    }
    sequence->next = number + 1;
}

int sequence_add(struct sequence *sequence, uint64_t number)
{
    uint64_t bit;
    if (number >= sequence->next) {
        sequence_advance(sequence, number);
    } else if (sequence->next - number > SEQUENCE_WINDOW) {
        sequence->reordered_count++;
        sequence->unique_count++;
        return 1;
    } else if (*sequence_word(sequence, number, &bit) & bit) {
        sequence->duplicate_count++;
        return 0;
    } else {
        sequence->reordered_count++;
    }
    uint64_t *word = sequence_word(sequence, number, &bit);
    *word |= bit;
    sequence->unique_count++;
    return 1;
}
