/* Two macros are the whole framework: a failed CHECK prints where and counts, the program exits with the count. */
#ifndef HPCQ_CHECK_H
#define HPCQ_CHECK_H

#include <stdio.h>

extern int check_failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            check_failures++;                                                                                          \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
        }                                                                                                              \
    } while (0)

#define CHECK_TEXT(found, wanted)                                                                                      \
    do {                                                                                                               \
        const char *found_ = (found), *wanted_ = (wanted);                                                             \
        if (!found_ || strcmp(found_, wanted_) != 0) {                                                                 \
            check_failures++;                                                                                          \
            fprintf(stderr, "%s:%d: found %s, wanted %s\n", __FILE__, __LINE__, found_ ? found_ : "NULL", wanted_);    \
        }                                                                                                              \
    } while (0)

void check_crypto(void);
void check_json(void);
void check_numbers(void);
void check_options(void);
void check_messages(void);
void check_counters(void);
void check_decide(void);
void check_fuzz(void);
void check_capture(void);

#endif
