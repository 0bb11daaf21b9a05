/* See spool.h. */
#include "tournament/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SPOOL_FORMAT = 1, JOB_BYTES = 64 };

static bool spool_write(struct spool *spool, const struct text *text, struct failure *failure)
{
    return text_write(text, 0, spool->descriptor) || fail_system(failure, "spool");
}

bool spool_open(struct spool *spool, const char *path, struct failure *failure)
{
    char last = '\n';
    struct stat status;
    spool->descriptor = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (spool->descriptor < 0 || fstat(spool->descriptor, &status))
        return fail_system(failure, "spool %s", path);
    if (status.st_size > 0 && pread(spool->descriptor, &last, 1, status.st_size - 1) != 1)
        return fail_system(failure, "spool %s", path);
    struct text end = {0};
    text_add(&end, "\n", 1);
    bool ok = last == '\n' || spool_write(spool, &end, failure); /* what was torn off stays a line of its own */
    text_free(&end);
    return ok;
}

static void spool_head(struct text *line, const struct tournament *tournament, const struct tournament_step *step,
                       const struct match *match)
{
    json_open(line, '{');
    json_key(line, "format");
    json_integer(line, SPOOL_FORMAT);
    json_key(line, "job");
    json_string(line, match->job);
    json_key(line, "test");
    json_unsigned(line, tournament_test(tournament, step)->test_no);
    json_key(line, "repetition");
    json_unsigned(line, step->repetition_no);
}

static void spool_raw(struct text *line, const char *key, const char *json)
{
    json_key(line, key);
    if (json)
        json_raw(line, json);
    else
        json_null(line);
}

bool spool_result(struct spool *spool, const struct spooled *spooled, struct failure *failure)
{
    struct text line = {0};
    const struct tournament_step *step = spooled->step;
    spool_head(&line, spooled->tournament, step, spooled->match);
    json_key(&line, "round");
    json_unsigned(&line, step->round_no);
    json_key(&line, "client");
    json_string(&line, spooled->tournament->nodes[spooled->match->client]);
    json_key(&line, "server");
    json_string(&line, spooled->tournament->nodes[spooled->match->server]);
    json_key(&line, "at_once");
    json_unsigned(&line, step->match_count);
    json_key(&line, "rc");
    json_integer(&line, spooled->rc);
    json_key(&line, "started_utc");
    json_string(&line, spooled->started_utc[0] ? spooled->started_utc : NULL);
    json_key(&line, "ended_utc");
    json_string(&line, spooled->ended_utc);
    json_key(&line, "reason");
    json_string(&line, spooled->reason);
    spool_raw(&line, "evidence", spooled->evidence);
    spool_raw(&line, "result", spooled->result);
    json_close(&line, '}');
    text_add(&line, "\n", 1);
    bool ok = spool_write(spool, &line, failure);
    text_clear(&line);
    spool_sizes_name(&line, spooled->tournament, step, spooled->match);
    if (ok && spooled->result && line.length)
        unlink(line.data);
    text_free(&line);
    return ok;
}

void spool_sizes_name(struct text *name, const struct tournament *tournament, const struct tournament_step *step,
                      const struct match *match)
{
    const struct planned_test *test = tournament_test(tournament, step);
    text_clear(name);
    if (((const struct common_options *)test->options)->sweep_to_bytes)
        text_print(name, "%s-t%lu-r%lu.sizes", match->job, test->test_no, step->repetition_no);
}

int spool_sizes_open(const char *name)
{
    int descriptor = name && *name ? open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (descriptor >= 0 && write(descriptor, "\n", 1) != 1) { /* after the torn line of one that was killed */
        close(descriptor);
        descriptor = -1;
    }
    if (name && *name && descriptor < 0)
        fprintf(stderr, "warning: %s: %s: a kill takes the sizes of this sweep away\n", name, strerror(errno));
    return descriptor;
}

bool spool_begun(struct spool *spool, const struct tournament *tournament, const struct tournament_step *step,
                 const struct match *match, struct failure *failure)
{
    struct text line = {0};
    char now[UTC_TEXT_BYTES];
    clock_utc(now);
    spool_head(&line, tournament, step, match);
    json_key(&line, "begun_utc");
    json_string(&line, now);
    json_close(&line, '}');
    text_add(&line, "\n", 1);
    bool ok = spool_write(spool, &line, failure);
    text_free(&line);
    return ok;
}

bool spool_sync(struct spool *spool, struct failure *failure)
{
    return fdatasync(spool->descriptor) == 0 || errno == EINVAL || fail_system(failure, "spool");
}

bool spool_mark(const char *path, struct tournament *tournament, struct failure *failure)
{
    char *line = NULL, job[JOB_BYTES];
    size_t room = 0;
    ssize_t length;
    unsigned long test_no, repetition_no;
    FILE *file = fopen(path, "r");
    if (!file)
        return errno == ENOENT || fail_system(failure, "spool %s", path);
    while ((length = getline(&line, &room, file)) > 0) {
        int head = 0;
        if (sscanf(line, "{\"format\":1,\"job\":\"%63[^\"]\",\"test\":%lu,\"repetition\":%lu,%n", job, &test_no,
                   &repetition_no, &head) != 3 ||
            !head || line[length - 1] != '\n' || line[length - 2] != '}')
            continue; /* a torn line */
        struct match *match = tournament_find(tournament, job, test_no, repetition_no);
        if (match && !strncmp(line + head, "\"begun_utc\"", 11))
            match->begun_count++;
        else if (match)
            match->settled = true;
    }
    fclose(file);
    free(line);
    return true;
}
