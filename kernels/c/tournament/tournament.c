/* See tournament.h. */
#include "tournament/tournament.h"

#include "describe/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 4 };

struct reader {
    struct tournament *tournament;
    const struct program *program;
    struct failure *failure;
    const char *path;
    size_t line_no;
    bool *busy; /* nodes of the step being read */
};

static bool wrong(struct reader *reader, const char *what)
{
    return fail(reader->failure, EXIT_USAGE, "%s:%zu: %s", reader->path, reader->line_no, what);
}

/* Room for one more; the room doubles, so that reading stays linear. */
static void *list_grow(void *list, size_t count, size_t item_bytes)
{
    if (count & (count - 1))
        return list;
    void *grown = realloc(list, (count ? 2 * count : 1) * item_bytes);
    if (!grown) {
        fputs("error: out of memory\n", stderr);
        exit(EXIT_SYSTEM);
    }
    return grown;
}

static char *copy(const char *text)
{
    char *made = memory_new(strlen(text) + 1, 1);
    return strcpy(made, text);
}

size_t tournament_node(const struct tournament *tournament, const char *name)
{
    for (size_t i = 0; i < tournament->node_count; i++)
        if (!strcmp(tournament->nodes[i], name))
            return i;
    return tournament->node_count;
}

static bool read_number(struct reader *reader, const char *word, unsigned long *value)
{
    char *end = NULL;
    errno = 0;
    *value = strtoul(word, &end, 10);
    return (*word >= '0' && *word <= '9' && !*end && !errno && *value <= 1000000000) ||
           wrong(reader, "a number from 0 to 1000000000 is allowed here");
}

static bool read_node(struct reader *reader, char **words)
{
    struct tournament *tournament = reader->tournament;
    if (tournament->step_count)
        return wrong(reader, "nodes come before steps");
    if (tournament->node_count == TOURNAMENT_NODES_MAX)
        return wrong(reader, "too many nodes");
    if (tournament_node(tournament, words[1]) < tournament->node_count)
        return wrong(reader, "this node stands twice");
    tournament->nodes = list_grow(tournament->nodes, tournament->node_count, sizeof *tournament->nodes);
    tournament->nodes[tournament->node_count++] = copy(words[1]);
    return true;
}

static bool read_test(struct reader *reader, char **words)
{
    struct tournament *tournament = reader->tournament;
    tournament->tests = list_grow(tournament->tests, tournament->test_count, sizeof *tournament->tests);
    struct planned_test *test = &tournament->tests[tournament->test_count];
    char *end = NULL;
    *test = (struct planned_test){.kernel = program_kernel(reader->program, words[2])};
    snprintf(test->kernel_name, sizeof test->kernel_name, "%s", words[2]);
    test->timeout_s = strtod(words[3], &end);
    if (!read_number(reader, words[1], &test->test_no))
        return false;
    if (*end || !(test->timeout_s > 0 && test->timeout_s <= 1e5))
        return wrong(reader, "a time-out above 0 and up to 100000 s is allowed");
    if (test->kernel) {
        test->options = memory_new(1, test->kernel->options.struct_bytes);
        options_default(&test->kernel->options, test->options);
    }
    tournament->test_count++;
    return true;
}

static bool read_decided_after(struct reader *reader, char **words)
{
    return read_number(reader, words[1], &reader->tournament->decided_after);
}

static bool read_option(struct reader *reader, char **words)
{
    struct tournament *tournament = reader->tournament;
    if (!tournament->test_count)
        return wrong(reader, "an option comes after its test");
    struct planned_test *test = &tournament->tests[tournament->test_count - 1];
    if (!test->kernel)
        return true;
    if (!options_set(&test->kernel->options, test->options, words[1], words[2], reader->failure))
        return false;
    const struct common_options *common = test->options;
    test->expected_s = common->warmup_s + common->duration_s;
    return true;
}

static bool read_step(struct reader *reader, char **words)
{
    struct tournament *tournament = reader->tournament;
    struct tournament_step step = {0};
    unsigned long test_no = 0;
    if (!read_number(reader, words[1], &step.round_no) || !read_number(reader, words[2], &test_no) ||
        !read_number(reader, words[3], &step.repetition_no))
        return false;
    while (step.test < tournament->test_count && tournament->tests[step.test].test_no != test_no)
        step.test++;
    if (step.test == tournament->test_count)
        return wrong(reader, "no such test before this line");
    if (!reader->busy)
        reader->busy = memory_new(tournament->node_count + 1, sizeof *reader->busy);
    memset(reader->busy, 0, (tournament->node_count + 1) * sizeof *reader->busy);
    tournament->steps = list_grow(tournament->steps, tournament->step_count, sizeof *tournament->steps);
    tournament->steps[tournament->step_count++] = step;
    return true;
}

static bool read_match(struct reader *reader, char **words)
{
    struct tournament *tournament = reader->tournament;
    if (!tournament->step_count)
        return wrong(reader, "a match comes after its step");
    struct tournament_step *step = &tournament->steps[tournament->step_count - 1];
    struct match match = {.client = tournament_node(tournament, words[2]),
                          .server = tournament_node(tournament, words[3])};
    if (match.client == tournament->node_count || match.server == tournament->node_count)
        return wrong(reader, "a node that is not of this tournament");
    if (match.client == match.server || reader->busy[match.client] || reader->busy[match.server])
        return wrong(reader, "a node stands twice in this step");
    reader->busy[match.client] = reader->busy[match.server] = true;
    match.job = copy(words[1]);
    step->matches = list_grow(step->matches, step->match_count, sizeof *step->matches);
    step->matches[step->match_count++] = match;
    return true;
}

static bool read_measured(struct reader *reader, char **words)
{
    struct tournament *tournament = reader->tournament;
    struct tournament_step *step = tournament->step_count ? &tournament->steps[tournament->step_count - 1] : NULL;
    if (!step || !step->match_count || step->matches[step->match_count - 1].sizes_done)
        return wrong(reader, "measured sizes come once, after their match");
    step->matches[step->match_count - 1].sizes_done = copy(words[1]);
    return true;
}

static bool read_head(struct reader *reader, char **words)
{
    return !strcmp(words[1], "1") || wrong(reader, "format 1 is allowed");
}

static bool read_record(struct reader *reader, char **words, size_t word_count)
{
    static const struct {
        const char *name;
        size_t word_count;
        bool (*read)(struct reader *reader, char **words);
    } records[] = {{"tournament", 2, read_head},   {"node", 2, read_node},
                   {"test", 4, read_test},         {"option", 3, read_option},
                   {"step", 4, read_step},         {"match", 4, read_match},
                   {"measured", 2, read_measured}, {"decided_after", 2, read_decided_after}};
    for (size_t i = 0; i < ROW_COUNT(records); i++) {
        if (strcmp(words[0], records[i].name) != 0)
            continue;
        if (reader->line_no == 1 && i != 0)
            break;
        return word_count == records[i].word_count ? records[i].read(reader, words)
                                                   : wrong(reader, "another number of words than this record has");
    }
    return wrong(reader, reader->line_no == 1
                             ? "not a tournament file"
                             : "unknown: allowed: node, decided_after, test, option, step, match, measured");
}

static bool read_line(struct reader *reader, char *line)
{
    char *words[WORDS_MAX + 1], *rest = NULL;
    size_t count = 0;
    reader->line_no++;
    for (char *word = strtok_r(line, " \n", &rest); word && count <= WORDS_MAX; word = strtok_r(NULL, " \n", &rest))
        words[count++] = word;
    return count > 0 ? read_record(reader, words, count) : wrong(reader, "an empty line");
}

bool tournament_read(const char *path, const struct program *program, struct tournament *tournament,
                     struct failure *failure)
{
    struct reader reader = {.tournament = tournament, .program = program, .failure = failure, .path = path};
    char *line = NULL;
    size_t room = 0;
    *tournament = (struct tournament){0};
    FILE *file = fopen(path, "r");
    if (!file)
        return fail_system(failure, "tournament %s", path);
    while (!failure->failed && getline(&line, &room, file) > 0)
        read_line(&reader, line);
    if (!failure->failed && ferror(file))
        fail_system(failure, "tournament %s", path);
    if (!failure->failed && !reader.line_no)
        fail(failure, EXIT_USAGE, "%s: empty: not a tournament file", path);
    fclose(file);
    free(line);
    free(reader.busy);
    return !failure->failed;
}

void tournament_free(struct tournament *tournament)
{
    for (size_t i = 0; i < tournament->node_count; i++)
        free(tournament->nodes[i]);
    for (size_t i = 0; i < tournament->test_count; i++)
        free(tournament->tests[i].options);
    for (size_t i = 0; i < tournament->step_count; i++) {
        for (size_t j = 0; j < tournament->steps[i].match_count; j++) {
            free(tournament->steps[i].matches[j].job);
            free(tournament->steps[i].matches[j].sizes_done);
        }
        free(tournament->steps[i].matches);
    }
    free(tournament->nodes);
    free(tournament->tests);
    free(tournament->steps);
    *tournament = (struct tournament){0};
}

const struct planned_test *tournament_test(const struct tournament *tournament, const struct tournament_step *step)
{
    return &tournament->tests[step->test];
}

bool tournament_ours(const struct tournament *tournament, const struct tournament_step *step)
{
    if (!tournament->tests[step->test].kernel)
        return false;
    for (size_t i = 0; i < step->match_count; i++)
        if (!step->matches[i].settled)
            return true;
    return false;
}

struct match *tournament_find(struct tournament *tournament, const char *job, unsigned long test_no,
                              unsigned long repetition_no)
{
    for (size_t i = 0; i < tournament->step_count; i++) {
        struct tournament_step *step = &tournament->steps[i];
        if (step->repetition_no != repetition_no || tournament->tests[step->test].test_no != test_no)
            continue;
        for (size_t j = 0; j < step->match_count; j++)
            if (!strcmp(step->matches[j].job, job))
                return &step->matches[j];
    }
    return NULL;
}
