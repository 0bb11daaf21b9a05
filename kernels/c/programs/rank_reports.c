/* See rank_reports.h. */
#include "programs/rank_reports.h"

#include "base/aside.h"
#include "base/signals.h"
#include "engine/report.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 65536, LINGER_MS = 3000, TURN_MS = 50 };

static void report_path(struct text *path, const char *prefix, int rank, const char *more)
{
    text_clear(path);
    text_print(path, "%s%d%s", prefix, rank, more);
}

void rank_reports_begin(struct rank_reports *reports, const char *prefix, int count, int per_node)
{
    *reports =
        (struct rank_reports){.prefix = prefix, .count = count, .missing_count = count - 1, .per_node = per_node};
    reports->here = memory_new((size_t)count, sizeof *reports->here);
    reports->here[0] = true;
}

void rank_reports_end(struct rank_reports *reports)
{
    free(reports->here);
}

/* Reading the folder makes a shared file system look for what is new in it. */
static void folder_look(const char *prefix)
{
    const char *slash = strrchr(prefix, '/');
    char *folder = slash ? strndup(prefix, (size_t)(slash - prefix) + 1) : strdup(".");
    DIR *opened = folder ? opendir(folder) : NULL;
    while (opened && readdir(opened)) {
    }
    if (opened)
        closedir(opened);
    free(folder);
}

static bool report_load(const char *path, struct received *message)
{
    struct text whole = {0};
    char piece[READ_BYTES];
    size_t got;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while ((got = fread(piece, 1, sizeof piece, file)) > 0)
        text_add(&whole, piece, got);
    fclose(file);
    text_add(&whole, "", 0);
    *message = (struct received){.payload = whole.data, .length = whole.length};
    if (whole.length && received_split(message))
        return true;
    received_free(message);
    return false;
}

static void report_of(struct rank_reports *reports, struct run *run, int rank, const struct received *message)
{
    const char *failed = received_get(message, "failed"), *evidence = received_get(message, "evidence"),
               *output = received_get(message, "output.server");
    char name[32]; /* of a node's first rank, as of the only one */
    snprintf(name, sizeof name, "rank%d", rank / reports->per_node);
    if (failed && !reports->failure[0])
        snprintf(reports->failure, sizeof reports->failure, "rank %d: %s", rank, failed);
    if (rank == reports->per_node) {
        report_read(run, message);
        return;
    }
    if (evidence && rank % reports->per_node == 0 && json_check(evidence))
        notes_add(&run->others, name, evidence);
    if (failed && output && json_check(output))
        notes_add(&run->outputs, name, output);
}

void rank_reports_take(struct rank_reports *reports, struct run *run)
{
    struct text path = {0};
    if (reports->missing_count)
        folder_look(reports->prefix);
    for (int rank = 1; rank < reports->count; rank++) {
        struct received message = {0};
        report_path(&path, reports->prefix, rank, "");
        if (reports->here[rank] || !report_load(text_string(&path), &message))
            continue;
        report_of(reports, run, rank, &message);
        received_free(&message);
        unlink(text_string(&path));
        reports->here[rank] = true;
        reports->missing_count--;
    }
    text_free(&path);
}

void rank_reports_end_all(const struct rank_reports *reports)
{
    struct text path = {0};
    text_print(&path, "%send", reports->prefix);
    FILE *file = reports->count > 1 ? fopen(text_string(&path), "we") : NULL;
    if (file)
        fclose(file);
    text_free(&path);
}

bool rank_reports_told_to_end(const char *prefix)
{
    struct text path = {0};
    text_print(&path, "%send", prefix);
    folder_look(prefix);
    bool told = access(text_string(&path), F_OK) == 0;
    text_free(&path);
    return told;
}

int rank_reports_missing(const struct rank_reports *reports)
{
    for (int rank = 1; rank < reports->count; rank++)
        if (!reports->here[rank])
            return rank;
    return 0;
}

static const char *granted(const struct run *run, const char *name)
{
    for (size_t i = 0; i < run->granted.count; i++)
        if (!strcmp(run->granted.list[i].name, name))
            return run->granted.list[i].value;
    return NULL;
}

bool rank_reports_same_host(const struct run *run)
{
    const char *mine = granted(run, "client_host_name"), *other = granted(run, "server_host_name");
    return mine && other && !strcmp(mine, other);
}

bool rank_report_write(const struct run *run, const char *prefix, int rank, struct failure *failure)
{
    struct text message = {0}, path = {0};
    struct aside aside;
    if (run->evidence_complete)
        report_write(run, &message);
    else
        message_begin(&message, "report");
    if (run->failure.failed)
        message_put(&message, "failed", run->failure.message);
    report_path(&path, prefix, rank, "");
    aside_open(&aside, text_string(&path));
    bool ok = aside_close(&aside, aside.file && fwrite(message.data, 1, message.length, aside.file) == message.length);
    if (!ok)
        fail_system(failure, "%s", text_string(&path));
    for (int waited = 0; ok && run->failure.failed && waited < LINGER_MS && !signals_stop(); waited += TURN_MS) {
        folder_look(prefix);
        if (access(text_string(&path), F_OK) != 0)
            break;
        poll(NULL, 0, TURN_MS);
    }
    text_free(&message);
    text_free(&path);
    return ok;
}
