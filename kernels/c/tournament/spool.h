/* The spool: one file to which everything that was measured is appended, one JSON object a line, each written at once.
 *
 *   {"format":1,"job":"j00001","test":1,"repetition":1,"begun_utc":"..."}             MPI: somebody set out to measure
 * it
 *   {"format":1,"job":"j00001","test":1,"repetition":1,"round":1,"client":"n1","server":"n2","at_once":24,
 *    "rc":0,"started_utc":"...","ended_utc":"...","reason":null,"evidence":{...},"result":{the kernel's line}}
 *
 * A player that is killed loses nothing that it wrote, and the next one knows from the file what is left. */
#ifndef HPCQ_SPOOL_H
#define HPCQ_SPOOL_H

#include "base/clock.h"
#include "tournament/tournament.h"

struct spool {
    int descriptor;
};

/* What became of one match. */
struct spooled {
    const struct tournament *tournament;
    const struct tournament_step *step;
    const struct match *match;
    int rc;
    const char *reason;   /* NULL when there is a line of the kernel */
    const char *result;   /* the kernel's line, or NULL */
    const char *evidence; /* all counters of both ends, or NULL */
    char started_utc[UTC_TEXT_BYTES], ended_utc[UTC_TEXT_BYTES];
};

bool spool_open(struct spool *spool, const char *path, struct failure *failure);
bool spool_result(struct spool *spool, const struct spooled *spooled, struct failure *failure);
bool spool_begun(struct spool *spool, const struct tournament *tournament, const struct tournament_step *step,
                 const struct match *match, struct failure *failure);
/* Sizes of a sweep are kept in a file beside the spool until their match is in it, JOB-tTEST_NO-rREPETITION_NO.sizes: a
 * job that is killed has all but those under way. The name is empty for all else. */
void spool_sizes_name(struct text *name, const struct tournament *tournament, const struct tournament_step *step,
                      const struct match *match);
/* To append to; -1: the name is NULL or empty, or, which is said, the file cannot be made. */
int spool_sizes_open(const char *name);
bool spool_sync(struct spool *spool, struct failure *failure); /* to the disk */
/* Marks in the tournament what the file says is settled or begun; no file is an empty one. */
bool spool_mark(const char *path, struct tournament *tournament, struct failure *failure);

#endif
