/* A file that is written beside its name and renamed when it is whole: nobody reads half of it. What has the name and
 * is no file (a device, a pipe) is written to where it is. */
#ifndef HPCQ_ASIDE_H
#define HPCQ_ASIDE_H

#include "base/text.h"

#include <stdio.h>

struct aside {
    const char *path;
    struct text part; /* the name until then; empty: it is written in place */
    FILE *file;       /* NULL: it could not be opened */
};

void aside_open(struct aside *aside, const char *path);
/* fine: all was written. False, with errno, where the file is not there. */
bool aside_close(struct aside *aside, bool fine);

#endif
