/* Evidence beside the result line: all counters of both ends in one file, and the raw texts as recorded trees. */
#ifndef HPCQ_KEEP_H
#define HPCQ_KEEP_H

#include "engine/run.h"

/* Into a report: what the first end asked for (run->keep). */
void keep_write(const struct run *run, struct text *message);
/* At the first end, from the second end's report: kept in memory until keep_files. */
void keep_read(struct run *run, const struct received *message);
/* All counters of both ends as one JSON object; false when there are none. */
bool keep_evidence(const struct run *run, struct text *json);
/* Under another name, then renamed; its folders are made. */
bool keep_file(struct run *run, const char *path, const char *data, size_t length);
/* The files of both ends: run->keep.evidence_path and <run->keep.raw_folder>/{client,server}/{before,after}/... */
bool keep_files(struct run *run);

#endif
