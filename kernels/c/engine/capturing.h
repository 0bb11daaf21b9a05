/* `capture: headers`: both ends record the packets of the test channel while the measurement runs, the client gets both
 * files and says what they show together. What cannot be captured is a warning, and the measurement goes on. */
#ifndef HPCQ_CAPTURING_H
#define HPCQ_CAPTURING_H

#include "engine/run.h"

void capturing_start(struct run *run);  /* once the test's port is known, before the client comes to it */
void capturing_record(struct run *run); /* the measurement begins */
void capturing_stop(struct run *run);   /* it is over: what this end's capture cost */
void capturing_write(const struct run *run, struct text *message);
void capturing_read(struct run *run, const struct received *message); /* client: compares both */
double capturing_limit_s(const struct run *run);                      /* what the file may take on its way */
void capturing_files(struct run *run); /* client: <keep.capture_path>.{client,server}.pcap */

#endif
