/* Where evidence comes from: one row a source. A source is read as text (fast, while the clock ticks) and parsed later.
 * Those that are no file (ioctl, netlink, rusage) are read into text too, `name value` lines. A recorded tree has the
 * same files below its root, and may have the text of any source as sources/<name>, which then comes first. */
#ifndef HPCQ_SOURCES_H
#define HPCQ_SOURCES_H

#include "evidence/counters.h"

enum { CPUS_INVOLVED_MAX = 6 };

struct source_place {
    const char *root;            /* "" on a live node, else a recorded tree */
    const char *interface;       /* under test; "" when unknown */
    int cpus[CPUS_INVOLVED_MAX]; /* the one that we were on at the first snapshot, then those of the NIC's interrupts */
    size_t cpu_count;
    int test_socket; /* the TCP connection that is measured; -1: there is none */
};

struct source {
    const char *name;
    const char *path;                                                          /* below the root */
    int (*read)(const struct source_place *place, struct text *out);           /* 0 or errno; in the place of a path */
    void (*parse)(const char *prefix, const char *text, struct counters *out); /* NULL: has parse_both */
    bool lists_hit_only; /* a counter that is not there is 0: ICMP types are listed once one was seen */
    /* Both snapshots at once, for a source with so many values that only those that moved may become counters. */
    void (*parse_both)(const char *prefix, const char *before, const char *after, struct counters *before_out,
                       struct counters *after_out);
};

extern const struct source sources[];
extern const size_t source_count;

int source_read(const struct source *source, const struct source_place *place, struct text *out);
void source_parse(const struct source *source, const char *before, const char *after, struct counters *before_out,
                  struct counters *after_out);
/* Fills in the CPUs involved; our own first. */
void source_place_cpus(struct source_place *place, int own);
int source_read_file(const char *root, const char *path, struct text *out); /* 0 or errno */

/* A word of a line; words point into the text. */
struct word {
    const char *at;
    size_t length;
};
/* Takes the next line from *text; false at the end. */
bool line_next(const char **text, struct word *line);
/* Takes the next word from the line; words end at blanks, or at `:` which is dropped. */
bool word_next(struct word *line, struct word *word);
uint64_t word_unsigned(struct word word);
bool word_is(struct word word, const char *text);
bool word_starts(struct word word, const char *text);

int read_tcp_info(const struct source_place *place, struct text *out);
int read_rusage(const struct source_place *place, struct text *out);
int read_clock(const struct source_place *place, struct text *out);
int read_ethtool(const struct source_place *place, struct text *out);
int read_qdisc(const struct source_place *place, struct text *out);
int read_sys_net(const struct source_place *place, struct text *out);
int read_infiniband(const struct source_place *place, struct text *out);
int read_cpu_power(const struct source_place *place, struct text *out);
int read_cpufreq(const struct source_place *place, struct text *out);
int read_cgroup(const struct source_place *place, struct text *out);

void parse_stat(const char *prefix, const char *text, struct counters *out);
void parse_net_dev(const char *prefix, const char *text, struct counters *out);
void parse_snmp(const char *prefix, const char *text, struct counters *out);
void parse_pairs(const char *prefix, const char *text, struct counters *out); /* name value */
void parse_gauges(const char *prefix, const char *text, struct counters *out);
void parse_tcp_info(const char *prefix, const char *text, struct counters *out);
void parse_qdisc(const char *prefix, const char *text, struct counters *out);
void parse_conntrack(const char *prefix, const char *text, struct counters *out);
void parse_cgroup(const char *prefix, const char *text, struct counters *out);
void parse_softnet(const char *prefix, const char *text, struct counters *out);
void parse_sockstat(const char *prefix, const char *text, struct counters *out);
void parse_schedstat(const char *prefix, const char *text, struct counters *out);
void parse_self_schedstat(const char *prefix, const char *text, struct counters *out);
void parse_vmstat(const char *prefix, const char *text, struct counters *out);
void parse_meminfo(const char *prefix, const char *text, struct counters *out);
void parse_loadavg(const char *prefix, const char *text, struct counters *out);
void parse_pressure(const char *prefix, const char *text, struct counters *out);
/* Interrupts and softirqs: a row that did not move leaves nothing; one that came or went leaves its total. */
void parse_interrupts(const char *prefix, const char *before_text, const char *after_text, struct counters *before_out,
                      struct counters *after_out);

#endif
