/* Decided is enough: what no further match would tell. The file `decided` beside the spool says what was left out.
 *
 *   node NAME PARTNER...    a test brought nothing with these partners, nor with anybody; they are fine with others
 *   test JOB TEST_NO        it failed twice the same way between this pair */
#ifndef HPCQ_DECIDE_H
#define HPCQ_DECIDE_H

#include "tournament/tournament.h"

enum { DECIDE_PARTNERS_MAX = 16, DECIDE_PAIRS_MAX = 4096 };

/* One node in one test. */
struct seen {
    size_t failed[DECIDE_PARTNERS_MAX]; /* nodes, each once */
    size_t failed_count;
    bool fine; /* with somebody */
};

/* A pair in one test that has failed so far. */
struct failing {
    const char *job;
    size_t test;
    int rc;
    unsigned count;
};

struct decision {
    const struct tournament *tournament;
    char *path;
    struct seen *seen; /* node after node, each test after test; NULL: nothing is decided */
    bool *decided;     /* by node */
    struct failing *failing;
    size_t failing_count;
};

void decide_begin(struct decision *decision, const struct tournament *tournament, const char *spool_path);
void decide_end(struct decision *decision);
/* What became of a match whose ends were both there. */
void decide_take(struct decision *decision, const struct tournament_step *step, const struct match *match, int rc);
bool decide_skips(const struct decision *decision, const struct tournament_step *step, const struct match *match);

#endif
