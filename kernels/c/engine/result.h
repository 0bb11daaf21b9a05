/* The one line on stdout. */
#ifndef HPCQ_RESULT_H
#define HPCQ_RESULT_H

#include "engine/run.h"

enum { RESULT_FORMAT = 1 };

int result_exit_code(const struct run *run);
/* The line's object, whatever state the run ended in; what is kept beside it is written too. */
void result_json(struct run *run, struct text *json);
/* To people: what failed, or why it does not count. */
void result_say(const struct run *run);
/* Writes the line on stdout and returns the code, or that of a write that failed. Frees the text. */
int result_write(struct text *json, int code);
/* All of these, whatever state the run ended in. Returns the exit code of the program. */
int result_print(struct run *run);

#endif
