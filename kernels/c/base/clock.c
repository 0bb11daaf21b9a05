/* See clock.h. */
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t clock_ns_from_s(double seconds)
{
    if (!(seconds > 0))
        return 0;
    return seconds > 9e9 ? (uint64_t)INT64_MAX : (uint64_t)(seconds * 1e9);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

double clock_read_ns(void)
{
    enum { BATCHES = 9, READINGS = 200 };
    uint64_t took_ns[BATCHES];
    for (size_t i = 0; i < BATCHES; i++) {
        uint64_t start_ns = clock_now_ns(), now_ns = start_ns;
        for (size_t j = 0; j < READINGS; j++)
            now_ns = clock_now_ns();
        took_ns[i] = now_ns - start_ns;
    }
    qsort(took_ns, BATCHES, sizeof took_ns[0], by_size);
    return (double)took_ns[BATCHES / 2] / READINGS;
}

/* A reading that differs from the one before does so by a number of steps, rounded to ns. So differences of as many
 * steps are at most 1 ns apart, and the least distance between others is the step. What lies between two readings
 * turns, or a clock whose readings all take as long would show one number of steps only. */
double clock_step_ns(void)
{
    enum { MOVES = 500, READINGS_MAX = 50000, TURNS = 16 };
    uint64_t moved_ns[MOVES], before_ns = clock_now_ns();
    size_t count = 0;
    for (size_t i = 0; i < READINGS_MAX && count < MOVES; i++) {
        for (volatile size_t turn = 0; turn < i % TURNS; turn++)
            ;
        uint64_t now_ns = clock_now_ns();
        if (now_ns > before_ns)
            moved_ns[count++] = now_ns - before_ns;
        before_ns = now_ns;
    }
    if (!count)
        return 1e6; /* the clock of the timer interrupt, 1 to 10 ms */
    qsort(moved_ns, count, sizeof moved_ns[0], by_size);
    uint64_t least_ns = moved_ns[0], step_ns = moved_ns[0];
    for (size_t i = 1; i < count; i++) {
        if (moved_ns[i] - moved_ns[i - 1] > 1) {
            step_ns = moved_ns[i] - least_ns < step_ns ? moved_ns[i] - least_ns : step_ns;
            least_ns = moved_ns[i];
        } else if (moved_ns[i] - least_ns > 1) {
            return 1; /* three in a row: it moves by the ns */
        }
    }
    return (double)step_ns;
}

void clock_utc(char out[UTC_TEXT_BYTES])
{
    struct timespec now;
    struct tm broken;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &broken);
    size_t length = strftime(out, UTC_TEXT_BYTES, "%Y-%m-%dT%H:%M:%S", &broken);
    snprintf(out + length, UTC_TEXT_BYTES - length, ".%06uZ", (unsigned)(now.tv_nsec / 1000) % 1000000U);
}

int clock_remaining_ms(uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    if (now >= deadline_ns)
        return 0;
    uint64_t ms = (deadline_ns - now + 999999) / 1000000;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

void clock_sleep_until(uint64_t when_ns)
{
    struct timespec when = {.tv_sec = (time_t)(when_ns / NS_PER_S), .tv_nsec = (long)(when_ns % NS_PER_S)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
}
