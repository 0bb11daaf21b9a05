/* The command line: flags of the program (`--secret-file F`) and options of a kernel (`--message_bytes N`). */
#ifndef HPCQ_ARGUMENTS_H
#define HPCQ_ARGUMENTS_H

#include "describe/options.h"
#include "wire/address.h"

struct flag {
    const char *name; /* without the dashes */
    const char **value;
};

/* Words from argv[first] on, each `--name value` or `--name=value`. table may be NULL: flags only. */
bool arguments_parse(int argc, char **argv, int first, const struct flag *flags, size_t flag_count,
                     const struct option_table *table, void *options, struct failure *failure);
bool arguments_port(const char *name, const char *text, unsigned *port, struct failure *failure);
bool arguments_ports(const char *text, struct port_range *range, struct failure *failure); /* A-B */
bool arguments_number(const char *name, const char *text, double minimum, double maximum, double *value,
                      struct failure *failure);
/* summary: the counters of the result line; full: every counter that moved. text may be NULL: summary. */
bool arguments_full(const char *name, const char *text, bool *full, struct failure *failure);

#endif
