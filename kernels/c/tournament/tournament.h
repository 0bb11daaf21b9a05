/* A tournament file: who plays what against whom, and what is played at once. Text, one record a line, words apart by
 * one blank; the program that plays it takes the steps whose kernels it holds and leaves the others alone.
 *
 *   tournament 1
 *   node NAME                               once per node
 *   decided_after COUNT                     a node that fails with so many partners that are fine is played no further
 *   test TEST_NO KERNEL TIMEOUT_S           then its parameters, all of them:
 *   option NAME VALUE
 *   step ROUND_NO TEST_NO REPETITION_NO     what follows is played at once; the next step waits for all of it
 *   match JOB CLIENT SERVER                 no node twice in a step
 *   measured A,B,...                        of the sweep of the match before: sizes that an earlier attempt measured
 */
#ifndef HPCQ_TOURNAMENT_H
#define HPCQ_TOURNAMENT_H

#include "describe/program.h"

struct planned_test {
    unsigned long test_no;
    char kernel_name[64];
    const struct kernel *kernel; /* NULL: another program's */
    double timeout_s;
    void *options;     /* the kernel's struct, checked */
    double expected_s; /* warm-up and measurement */
};

struct match {
    char *job;
    char *sizes_done;      /* of a sweep, A,B,...: not to be measured again; NULL: none */
    size_t client, server; /* indices of nodes */
    unsigned begun_count;  /* times that an earlier player of this file began it */
    bool settled;          /* there is a line about it */
};

struct tournament_step {
    unsigned long round_no, repetition_no;
    size_t test; /* index */
    struct match *matches;
    size_t match_count;
};

struct tournament {
    char **nodes;
    struct planned_test *tests;
    struct tournament_step *steps;
    size_t node_count, test_count, step_count;
    unsigned long decided_after; /* 0: everything is played */
};

enum { TOURNAMENT_NODES_MAX = 20000 };

bool tournament_read(const char *path, const struct program *program, struct tournament *tournament,
                     struct failure *failure);
void tournament_free(struct tournament *tournament);
/* Index of a node, or node_count. */
size_t tournament_node(const struct tournament *tournament, const char *name);
const struct planned_test *tournament_test(const struct tournament *tournament, const struct tournament_step *step);
/* What this program still has to play in a step. */
bool tournament_ours(const struct tournament *tournament, const struct tournament_step *step);
struct match *tournament_find(struct tournament *tournament, const char *job, unsigned long test_no,
                              unsigned long repetition_no);

#endif
