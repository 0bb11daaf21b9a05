/* See programs.h. */
#include "programs/programs.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION_BYTES_MAX = 2000, REMOVE_OPEN_MAX = 16 };
/* A script of Python on a shared file system of a busy node takes seconds before it says a word. */
static const double version_limit_s = 10;

static bool ready_read(const char *value, enum ready *ready)
{
    static const char *const names[] = {"at_once", "words", "listening"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(value, names[i])) {
            *ready = (enum ready)i;
            return true;
        }
    return false;
}

static bool seconds_read(const char *value, double *seconds)
{
    char *end = NULL;
    *seconds = strtod(value, &end);
    return end != value && !*end && *seconds > 0 && *seconds <= 86400;
}

static bool code_read(const char *value, struct foreign *foreign)
{
    char *end = NULL;
    long code = strtol(value, &end, 10);
    if (end == value || *end || code < 0 || code > 255 || foreign->code_count == PROGRAM_CODES_MAX)
        return false;
    foreign->codes[foreign->code_count++] = (int)code;
    return true;
}

/* One more line of the last file. */
static bool file_line_read(const char *value, struct words *texts)
{
    struct text whole = {0};
    if (!texts->count)
        return false;
    char **last = &texts->list[texts->count - 1];
    text_print(&whole, "%s%s\n", *last, value);
    free(*last);
    *last = strdup(text_string(&whole));
    text_free(&whole);
    return *last != NULL;
}

static bool record_read(const char *key, const char *value, struct foreign *foreign)
{
    struct {
        const char *key;
        struct words *words;
    } const lists[] = {{"failure_words", &foreign->failure_words},
                       {"version", &foreign->version},
                       {"server", &foreign->server},
                       {"client", &foreign->client}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (!strcmp(key, lists[i].key)) {
            words_add(lists[i].words, value);
            return true;
        }
    if (!strcmp(key, "name"))
        return (size_t)snprintf(foreign->name, sizeof foreign->name, "%s", value) < sizeof foreign->name;
    if (!strcmp(key, "file")) {
        words_add(&foreign->file_names, value);
        words_add(&foreign->file_texts, "");
        return *value && !strchr(value, '/') && *value != '.';
    }
    if (!strcmp(key, "output_file")) {
        free(foreign->output_file);
        return (foreign->output_file = strdup(value)) && *value && !strchr(value, '/');
    }
    if (!strcmp(key, "line"))
        return file_line_read(value, &foreign->file_texts);
    if (!strcmp(key, "limit_s"))
        return seconds_read(value, &foreign->limit_s);
    if (!strcmp(key, "ready_s"))
        return seconds_read(value, &foreign->ready_s);
    if (!strcmp(key, "ready"))
        return ready_read(value, &foreign->ready);
    if (!strcmp(key, "ready_words")) {
        free(foreign->ready_words);
        return (foreign->ready_words = strdup(value)) != NULL;
    }
    if (!strcmp(key, "server_ends"))
        return (foreign->server_ends = !strcmp(value, "yes")) || !strcmp(value, "no");
    return !strcmp(key, "exit_code") && code_read(value, foreign);
}

/* One line; *here says whether the records before it are those of the wanted test. */
static bool line_read(char *line, unsigned long line_no, unsigned long test_no, bool *here, bool *found,
                      struct foreign *foreign)
{
    char *value = strchr(line, ' '), empty[] = "";
    if (value)
        *value++ = '\0';
    else
        value = empty;
    if (line_no == 1)
        return !strcmp(line, "programs") && !strcmp(value, "1");
    if (!strcmp(line, "program")) {
        char *end = NULL;
        *here = strtoul(value, &end, 10) == test_no;
        *found = *found || *here;
        return end != value && !*end;
    }
    return !*here || record_read(line, value, foreign);
}

bool foreign_read(const char *path, unsigned long test_no, struct foreign *foreign, struct failure *failure)
{
    char *line = NULL;
    size_t size = 0;
    unsigned long line_no = 0;
    bool here = false, found = false, ok = true;
    *foreign = (struct foreign){.test_no = test_no, .limit_s = 60, .ready_s = 5};
    if (!path)
        return fail(failure, EXIT_USAGE, "programs-file: found nothing: allowed: the file of the job's programs");
    FILE *file = fopen(path, "re");
    if (!file)
        return fail_system(failure, "programs-file: %s", path);
    for (ssize_t length; ok && (length = getline(&line, &size, file)) >= 0;) {
        if (length && line[length - 1] == '\n')
            line[length - 1] = '\0';
        ok = line_read(line, ++line_no, test_no, &here, &found, foreign);
    }
    fclose(file);
    if (!ok)
        fail(failure, EXIT_USAGE, "%s:%lu: found %.64s: allowed: a record of a programs file", path, line_no, line);
    free(line);
    if (ok && !found)
        fail(failure, EXIT_USAGE, "%s: found no program %lu", path, test_no);
    if (!foreign->code_count)
        foreign->code_count = 1; /* 0 */
    return !failure->failed;
}

static bool file_written(const char *folder, const char *name, const char *text)
{
    struct text path = {0};
    text_print(&path, "%s/%s", folder, name);
    FILE *file = fopen(text_string(&path), "wxe");
    text_free(&path);
    bool ok = file && fputs(text, file) >= 0;
    return file ? !fclose(file) && ok : ok;
}

bool foreign_folder(struct foreign *foreign, struct failure *failure)
{
    const char *temporary = getenv("TMPDIR");
    struct text path = {0};
    if ((!foreign->file_names.count && !foreign->output_file) || foreign->folder)
        return true;
    text_print(&path, "%s/hpcq-program-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    bool ok = (foreign->folder = strdup(text_string(&path))) && mkdtemp(foreign->folder);
    if (!ok) { /* nothing was made */
        fail_system(failure, "%s", text_string(&path));
        free(foreign->folder);
        foreign->folder = NULL;
    }
    text_free(&path);
    for (size_t i = 0; ok && i < foreign->file_names.count; i++)
        if (!file_written(foreign->folder, foreign->file_names.list[i], foreign->file_texts.list[i]))
            ok = fail_system(failure, "%s/%s", foreign->folder, foreign->file_names.list[i]);
    return ok;
}

static void file_collected(const char *path, struct child *child)
{
    char piece[65536];
    struct text *output = &child->streams[0];
    FILE *file = fopen(path, "re");
    for (size_t got; file && (got = fread(piece, 1, sizeof piece, file)) > 0;) {
        size_t room = CHILD_OUTPUT_MAX - output->length, taken = got < room ? got : room;
        text_add(output, piece, taken);
        child->cut = child->cut || taken < got;
    }
    if (file)
        fclose(file);
}

void foreign_collect(const struct foreign *foreign, struct child *child)
{
    struct dirent **found = NULL;
    if (!foreign->folder || !foreign->output_file)
        return;
    int count = scandir(foreign->folder, &found, NULL, alphasort); /* glob() is younger than the floor */
    for (int i = 0; i < count; i++) {
        struct text path = {0};
        text_print(&path, "%s/%s", foreign->folder, found[i]->d_name);
        if (!fnmatch(foreign->output_file, found[i]->d_name, FNM_PERIOD))
            file_collected(text_string(&path), child);
        text_free(&path);
        free(found[i]);
    }
    free(found);
}

static int entry_removed(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status, (void)kind, (void)where;
    remove(path); /* what cannot be removed stays, and the rest goes */
    return 0;
}

bool words_mention(const struct words *words, const char *piece)
{
    for (size_t i = 0; i < words->count; i++)
        if (strstr(words->list[i], piece))
            return true;
    return false;
}

void foreign_free(struct foreign *foreign)
{
    if (foreign->folder)
        nftw(foreign->folder, entry_removed, REMOVE_OPEN_MAX, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    free(foreign->folder);
    foreign->folder = NULL;
    free(foreign->output_file);
    words_free(&foreign->file_names);
    words_free(&foreign->file_texts);
    free(foreign->ready_words);
    words_free(&foreign->failure_words);
    words_free(&foreign->version);
    words_free(&foreign->server);
    words_free(&foreign->client);
}

void foreign_fill(const struct words *words, const struct places *places, struct words *filled)
{
    char port[16], second_port[16];
    snprintf(port, sizeof port, "%u", places->port);
    snprintf(second_port, sizeof second_port, "%u", places->second_port);
    const struct {
        const char *name, *value;
    } known[] = {{"{address}", places->address},
                 {"{client_address}", places->client_address},
                 {"{port}", port},
                 {"{second_port}", second_port}};
    for (size_t i = 0; i < words->count; i++) {
        struct text word = {0};
        for (const char *s = words->list[i]; *s;) {
            size_t length = 0;
            for (size_t k = 0; k < sizeof known / sizeof known[0] && !length; k++)
                if (known[k].value && !strncmp(s, known[k].name, strlen(known[k].name))) {
                    length = strlen(known[k].name);
                    text_print(&word, "%s", known[k].value);
                }
            if (!length)
                text_add(&word, s, 1);
            s += length ? length : 1;
        }
        words_add(filled, text_string(&word));
        text_free(&word);
    }
}

/* A version command must not take itself for a rank: it is started without what a launcher of MPI said. */
static bool version_start(struct child *child, const struct foreign *foreign, struct failure *failure)
{
    static const char *const prefixes[] = {"PMI_", "PMIX_", "OMPI_", "PRTE_", "SLURM_", "HYDRA_", "MPIR_", "MV2_"};
    size_t count = 0, kept = 0;
    char **whole = environ;
    while (whole[count])
        count++;
    char **without = memory_new(count + 1, sizeof *without);
    for (size_t i = 0; i < count; i++) {
        bool ours = true;
        for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes && ours; p++)
            ours = strncmp(whole[i], prefixes[p], strlen(prefixes[p])) != 0;
        if (ours)
            without[kept++] = whole[i];
    }
    environ = without;
    bool ok = child_start(child, &foreign->version, NULL, failure);
    environ = whole;
    free(without);
    return ok;
}

bool foreign_version(const struct foreign *foreign, struct text *version, struct failure *failure)
{
    struct child child = {0};
    if (!foreign->version.count)
        return true;
    if (!version_start(&child, foreign, failure))
        return false;
    child_wait(&child, version_limit_s);
    for (size_t i = 0; i < 2 && version->length < VERSION_BYTES_MAX; i++) {
        size_t room = VERSION_BYTES_MAX - version->length;
        text_add(version, text_string(&child.streams[i]),
                 child.streams[i].length < room ? child.streams[i].length : room);
    }
    while (version->length && version->data[version->length - 1] == '\n')
        version->data[--version->length] = '\0';
    if (!version->length && child.timed_out)
        fail(failure, EXIT_PEER, "no word within %g s", version_limit_s);
    else if (!version->length)
        fail(failure, EXIT_PEER, "no word; exit code %d", child_code(&child));
    child_free(&child);
    return version->length > 0;
}

/* The line of its output that has words of failure; false where none has. */
static bool foreign_complaint(const struct foreign *foreign, const struct child *child, char *said, size_t size)
{
    for (size_t i = 0; i < foreign->failure_words.count; i++)
        for (size_t s = 0; s < 2; s++) {
            const char *text = text_string(&child->streams[s]);
            const char *begin = strstr(text, foreign->failure_words.list[i]);
            if (!begin)
                continue;
            size_t length = strcspn(begin, "\r\n");
            for (; begin > text && begin[-1] != '\n'; begin--)
                length++;
            for (; length && (*begin == ' ' || *begin == '\t'); begin++)
                length--;
            snprintf(said, size, "%.*s", (int)length, begin);
            return true;
        }
    return false;
}

bool foreign_succeeded(const struct foreign *foreign, const struct child *child, struct failure *failure)
{
    char last[200];
    bool accepted = false, complained = foreign_complaint(foreign, child, last, sizeof last);
    if (!complained)
        child_last_words(child, last, sizeof last);
    if (child->timed_out)
        return fail(failure, EXIT_PEER, "%s: ended at its limit of %g s; it said last: %s", foreign->name,
                    foreign->limit_s, last);
    for (size_t i = 0; i < foreign->code_count; i++)
        accepted = accepted || foreign->codes[i] == child_code(child);
    if (!accepted)
        return fail(failure, EXIT_PEER, "%s: exit code %d; it said%s: %s", foreign->name, child_code(child),
                    complained ? "" : " last", last);
    return !complained || fail(failure, EXIT_PEER, "%s: it said: %s", foreign->name, last);
}
