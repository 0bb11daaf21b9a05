/* Queueing disciplines of an interface, by rtnetlink (RTM_GETQDISC), as `name value` lines. */
#ifndef HPCQ_QDISC_H
#define HPCQ_QDISC_H

#include "base/text.h"

/* One line each: `<interface>.<kind>.drops 3` and packets, bytes, overlimits, requeues, backlog_bytes; disciplines of
 * one kind (the children of mq) are added up. Returns 0 or errno. */
int qdisc_read(const char *interface, struct text *out);

/* What a token bucket (tbf) at the root of the interface lets out; 0: there is none. Returns 0 or errno. */
int qdisc_rate(const char *interface, double *rate_bps);

#endif
