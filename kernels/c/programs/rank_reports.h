/* What the ranks of a foreign program tell the first one: a file each, in the job's folder, as of the control channel.
 */
#ifndef HPCQ_RANK_REPORTS_H
#define HPCQ_RANK_REPORTS_H

#include "engine/run.h"

struct rank_reports {
    const char *prefix;
    int count, missing_count; /* ranks, the first one included; reports that have not come */
    int per_node;             /* ranks of each node, one after the other: the first of them brings its evidence */
    bool *here;               /* by rank */
    char failure[400];        /* of the first rank that says that it failed */
};

void rank_reports_begin(struct rank_reports *reports, const char *prefix, int count, int per_node);
void rank_reports_end(struct rank_reports *reports);
/* Takes what has come since: the second node is the other end of `run`, the evidence of the rest goes to run->others.
 */
void rank_reports_take(struct rank_reports *reports, struct run *run);
/* The first rank gives up: the others end their programs too, though no launcher tells them. */
void rank_reports_end_all(const struct rank_reports *reports);
bool rank_reports_told_to_end(const char *prefix);            /* at the others */
int rank_reports_missing(const struct rank_reports *reports); /* the first rank without a report; 0: none */
/* Whether the ends say that they are one machine. */
bool rank_reports_same_host(const struct run *run);

/* The report of this rank; a failed one waits until the first rank has taken it, at most 3 s. */
bool rank_report_write(const struct run *run, const char *prefix, int rank, struct failure *failure);

#endif
