/* See aside.h. */
#include "base/aside.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

void aside_open(struct aside *aside, const char *path)
{
    struct stat there;
    *aside = (struct aside){.path = path};
    if (stat(path, &there) || S_ISREG(there.st_mode))
        text_print(&aside->part, "%s.part", path);
    aside->file = fopen(aside->part.length ? text_string(&aside->part) : path, "we");
}

bool aside_close(struct aside *aside, bool fine)
{
    int error = errno;
    bool opened = aside->file != NULL;
    fine = opened && fine;
    if (opened && fclose(aside->file) && fine) {
        error = errno;
        fine = false;
    }
    if (fine && aside->part.length && rename(text_string(&aside->part), aside->path)) {
        error = errno;
        fine = false;
    }
    if (!fine && opened && aside->part.length)
        unlink(text_string(&aside->part));
    text_free(&aside->part);
    errno = error;
    return fine;
}
