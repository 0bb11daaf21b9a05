/* What the node saw around a measurement: a snapshot before, one after, and the difference as JSON (EVIDENCE in
 * docs/architecture.md). Nothing here can fail a run: what cannot be read is named in `unavailable`. */
#ifndef HPCQ_EVIDENCE_H
#define HPCQ_EVIDENCE_H

#include "base/text.h"
#include "wire/address.h"

struct evidence;

/* local: our address of the control channel; interface: as the person named it, or NULL to look it up by address. */
struct evidence *evidence_new(const struct address *local, const char *interface);
/* The same over two recorded trees; evidence_before and evidence_after then read them. */
struct evidence *evidence_new_recorded(const char *before_root, const char *after_root, const char *interface);
const char *evidence_interface(const struct evidence *evidence); /* its name; empty: not known */
void evidence_socket(struct evidence *evidence, int descriptor); /* the TCP connection that is measured */
void evidence_before(struct evidence *evidence);
void evidence_after(struct evidence *evidence);
double evidence_node_cpu_ratio(const struct evidence *evidence); /* busy share of all CPUs; NAN below 10 ticks */
double evidence_node_cpu_ns(const struct evidence *evidence);    /* the same as time, added up over the CPUs */
/* One JSON object; full: with every counter that moved, not only those of the result line (reduce.h). */
void evidence_json(const struct evidence *evidence, bool full, struct text *json);

/* The texts as they were read: file number `index`, from 0, until it returns false. text is NULL where it could not be
 * read. Written below a folder they are recorded trees. */
struct raw_file {
    char path[96];
    const char *text;
};
bool evidence_raw(const struct evidence *evidence, size_t index, struct raw_file *file);

void evidence_free(struct evidence *evidence);

#endif
