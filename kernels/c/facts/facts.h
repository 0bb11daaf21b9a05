/* What a node is, once per node and job: the verb `facts` of both programs. One JSON object of groups; in a group a
 * flat map
 * "<item>.<name>": value, and the group "unavailable": what could not be read and why. No fact changes between two jobs
 * on an unchanged node, but for the groups `boot` and `now`. */
#ifndef HPCQ_FACTS_H
#define HPCQ_FACTS_H

#include "base/text.h"
#include "evidence/sysfs.h"

enum { NAME_MAX_BYTES = 192 };

struct facts {
    const char *root, *interface; /* "" when live, "" when none was named */
    struct text json;             /* the group being written */
    struct text unavailable;
};

void facts_collect(const char *root, const char *interface, struct text *json);
/* facts-NODE.json in a folder, whole or not at all; what is no facts is not written. */
void facts_write(const char *folder, const char *node, const char *facts);
int facts_main(int argc, char **argv);

/* For the parts: each writes one fact into the open group; empty values are left out. */
void fact_text(struct facts *facts, const char *value, const char *format, ...) __attribute__((format(printf, 3, 4)));
void fact_number(struct facts *facts, double value, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A number where the text is one, else the text. */
void fact_value(struct facts *facts, const char *value, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The first line of a file, when there is one. True when it was there. */
bool fact_file(struct facts *facts, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
void facts_unavailable(struct facts *facts, const char *source, const char *reason);

void facts_cpu(struct facts *facts); /* cpu.c */
void facts_numa(struct facts *facts);
void facts_mitigation(struct facts *facts);
void facts_nic(struct facts *facts); /* nic.c */
void facts_qdisc(struct facts *facts);
void facts_rdma(struct facts *facts);
void facts_route(struct facts *facts); /* route.c */
void facts_neighbour(struct facts *facts);
void facts_sysctl(struct facts *facts); /* system.c */
void facts_software(struct facts *facts);
void facts_module(struct facts *facts);
void facts_machine(struct facts *facts);
void facts_now(struct facts *facts);
void facts_memory_copy(struct facts *facts); /* memory.c */

#endif
