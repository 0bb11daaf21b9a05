/* See keep.h. */
#include "engine/keep.h"

#include "base/aside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Messages are lines; a raw text's own line ends travel as ASCII record separators. */
enum { LINE_END = '\x1e' };

static void characters_swap(char *text, char from, char to)
{
    for (; *text; text++)
        if (*text == from)
            *text = to;
}

void keep_write(const struct run *run, struct text *message)
{
    struct raw_file file;
    if (run->keep.evidence_path || run->keep.evidence_asked) {
        struct text whole = {0};
        evidence_json(run->evidence, true, &whole);
        message_put(message, "evidence_full", text_string(&whole));
        text_free(&whole);
    }
    if (!run->keep.raw_folder && !run->keep.raw_asked)
        return;
    for (size_t i = 0; evidence_raw(run->evidence, i, &file); i++) {
        char key[128];
        char *copy = file.text ? strdup(file.text) : NULL;
        if (!copy)
            continue;
        characters_swap(copy, '\n', LINE_END);
        snprintf(key, sizeof key, "raw.%s", file.path);
        message_put(message, key, copy);
        free(copy);
    }
}

void keep_read(struct run *run, const struct received *message)
{
    const char *cursor = NULL, *name, *value, *whole = received_get(message, "evidence_full");
    if (whole && json_check(whole))
        run->keep.peer_full = strdup(whole);
    while ((name = received_next(message, "raw.", &cursor, &value)))
        notes_add(&run->keep.peer_raw, name, value);
}

/* Makes the folders of a path, all but its last part. */
static void folders_make(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
}

bool keep_file(struct run *run, const char *path, const char *data, size_t length)
{
    struct text folders = {0};
    struct aside aside;
    text_print(&folders, "%s", path);
    folders_make(folders.data);
    text_free(&folders);
    aside_open(&aside, path);
    bool ok = aside_close(&aside, aside.file && fwrite(data, 1, length, aside.file) == length);
    return ok || fail_system(&run->failure, "%s", path);
}

/* A path of the peer's stays below the folder. */
static bool path_allowed(const char *path)
{
    return path[0] != '/' && !strstr(path, "..") && strlen(path) < 96;
}

static bool raw_write(struct run *run, const char *end, const char *path, const char *text)
{
    struct text full = {0};
    text_print(&full, "%s/%s/%s", run->keep.raw_folder, end, path);
    bool ok = !path_allowed(path) || keep_file(run, full.data, text, strlen(text));
    text_free(&full);
    return ok;
}

bool keep_evidence(const struct run *run, struct text *json)
{
    if (run->failure.failed || !run->evidence_complete)
        return false;
    json_open(json, '{');
    json_key(json, "client");
    evidence_json(run->evidence, true, json);
    json_key(json, "server");
    if (run->keep.peer_full)
        json_raw(json, run->keep.peer_full);
    else
        json_null(json);
    json_close(json, '}');
    return true;
}

static bool evidence_write(struct run *run)
{
    struct text json = {0};
    keep_evidence(run, &json);
    text_add(&json, "\n", 1);
    bool ok = keep_file(run, run->keep.evidence_path, json.data, json.length);
    text_free(&json);
    return ok;
}

bool keep_files(struct run *run)
{
    struct raw_file file;
    bool ok = true;
    if (run->failure.failed || !run->evidence_complete)
        return true;
    run_state(run, "evidence", 0);
    if (run->keep.evidence_path)
        ok = evidence_write(run);
    for (size_t i = 0; ok && run->keep.raw_folder && evidence_raw(run->evidence, i, &file); i++)
        if (file.text)
            ok = raw_write(run, "client", file.path, file.text);
    for (size_t i = 0; ok && run->keep.raw_folder && i < run->keep.peer_raw.count; i++) {
        characters_swap(run->keep.peer_raw.list[i].value, LINE_END, '\n');
        ok = raw_write(run, "server", run->keep.peer_raw.list[i].name, run->keep.peer_raw.list[i].value);
    }
    return ok;
}
