/* The one line on stdout. */
#ifndef HPCQ_RESULT_H
#define HPCQ_RESULT_H

#include "engine/run.h"

enum { RESULT_FORMAT = 1 };

/* Where the line goes. */
struct result_out {
    struct text json;
    /* Each size of a sweep is written there, as a line, when it was measured: whoever kills us later takes none of it
     * away. -1: nowhere. */
    int descriptor;
    size_t written; /* of json, by now */
    bool failed;    /* that takes no more */
    bool unsynced;  /* the disk takes no more; that was said */
};

int result_exit_code(const struct run *run);
/* The line's object, whatever state the run ended in; what is kept beside it is written too. */
void result_json(struct run *run, struct text *json);
/* To people: what failed, or why it does not count. */
void result_say(const struct run *run);
/* Writes what is new, as a line, to the disk: it may not wait. Not for a timed section. */
bool result_flush(struct result_out *out, struct failure *failure);
/* Writes the rest and returns the code, or that of a write that failed. Frees the text. */
int result_write(struct result_out *out, int code);
/* All of these, whatever state the run ended in. Returns the exit code of the program. */
int result_print(struct run *run);

#endif
