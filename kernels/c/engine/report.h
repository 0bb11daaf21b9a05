/* What the second end tells the first after the measurement: its metrics, what it was granted, warnings, evidence. */
#ifndef HPCQ_REPORT_H
#define HPCQ_REPORT_H

#include "engine/run.h"

void report_write(const struct run *run, struct text *message);
void report_read(struct run *run, const struct received *message); /* into the first end's run */

/* What the ends of a kernel that tells say to each other before the test channel is open. */
void told_write(const struct run *run, struct text *message);
void told_read(struct run *run, const struct received *message);

#endif
