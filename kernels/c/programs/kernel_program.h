/* What the kernel `program` knows of one measurement: for those who start foreign programs (kernel_program.c, rank.c).
 */
#ifndef HPCQ_KERNEL_PROGRAM_H
#define HPCQ_KERNEL_PROGRAM_H

#include "engine/run.h"
#include "programs/programs.h"

struct program_options {
    struct common_options common;
    int64_t test_no;
};

struct program_state {
    struct foreign foreign;
    struct words command; /* as it was started */
    struct child child;
    struct text version;
    uint64_t end_by_ns; /* server: after the stop */
};

#endif
