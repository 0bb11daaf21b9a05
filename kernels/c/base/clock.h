/* The time base: CLOCK_MONOTONIC in ns for intervals, UTC text for records. */
#ifndef HPCQ_CLOCK_H
#define HPCQ_CLOCK_H

#include <stdint.h>
#include <time.h>

enum { UTC_TEXT_BYTES = 32 };
#define NS_PER_S 1000000000ULL

static inline uint64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The earlier of two moments, where 0 is none. */
static inline uint64_t clock_earlier_ns(uint64_t one, uint64_t other)
{
    return !one || (other && other < one) ? other : one;
}

double clock_read_ns(void);                   /* what one reading costs: the median of batches */
double clock_step_ns(void);                   /* the least by which two readings differ, to 1 ns */
uint64_t clock_ns_from_s(double seconds);     /* clamped to 0 .. about 292 years */
void clock_utc(char out[UTC_TEXT_BYTES]);     /* 2026-11-21T02:03:04.123456Z */
int clock_remaining_ms(uint64_t deadline_ns); /* for poll: 0 when past, rounded up */
void clock_sleep_until(uint64_t when_ns);     /* returns early on a signal */

#endif
