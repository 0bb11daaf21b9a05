/* The one line on stdout. */
#ifndef HPCQ_RESULT_H
#define HPCQ_RESULT_H

#include "engine/run.h"

int result_exit_code(const struct run *run);
/* The line's object, whatever state the run ended in; what is kept beside it is written too. */
void result_json(struct run *run, struct text *json);
/* Writes the line, whatever state the run ended in. Returns the exit code of the program. */
int result_print(struct run *run);

#endif
