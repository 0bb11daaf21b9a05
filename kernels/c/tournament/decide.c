#include "tournament/decide.h"

#include "base/fail.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void decide_begin(struct decision *decision, const struct tournament *tournament, const char *spool_path)
{
    *decision = (struct decision){.tournament = tournament};
    if (!tournament->decided_after)
        return;
    const char *slash = strrchr(spool_path, '/');
    size_t folder = slash ? (size_t)(slash - spool_path) + 1 : 0, room = folder + sizeof "decided";
    decision->path = memory_new(room, 1);
    snprintf(decision->path, room, "%.*sdecided", (int)folder, spool_path);
    decision->seen = memory_new(tournament->node_count * tournament->test_count + 1, sizeof *decision->seen);
    decision->decided = memory_new(tournament->node_count + 1, sizeof *decision->decided);
    decision->failing = memory_new(DECIDE_PAIRS_MAX, sizeof *decision->failing);
}

void decide_end(struct decision *decision)
{
    free(decision->path);
    free(decision->seen);
    free(decision->decided);
    free(decision->failing);
    *decision = (struct decision){0};
}

static struct seen *seen_of(const struct decision *decision, size_t node, size_t test)
{
    return &decision->seen[node * decision->tournament->test_count + test];
}

static struct failing *failing_of(const struct decision *decision, const char *job, size_t test)
{
    for (size_t i = 0; i < decision->failing_count; i++)
        if (decision->failing[i].test == test && !strcmp(decision->failing[i].job, job))
            return &decision->failing[i];
    return NULL;
}

/* Without the file the rows lack a reason, and nothing else: no failure of the tournament. */
static void tell(const struct decision *decision, const char *line)
{
    FILE *file = fopen(decision->path, "a");
    if (!file)
        return;
    fputs(line, file);
    fclose(file);
}

static void tell_node(const struct decision *decision, size_t node, size_t test)
{
    const struct seen *seen = seen_of(decision, node, test);
    struct text line = {0};
    text_print(&line, "node %s", decision->tournament->nodes[node]);
    for (size_t i = 0; i < seen->failed_count; i++)
        if (seen_of(decision, seen->failed[i], test)->fine)
            text_print(&line, " %s", decision->tournament->nodes[seen->failed[i]]);
    text_print(&line, "\n");
    tell(decision, text_string(&line));
    text_free(&line);
}

static void failed_with(struct seen *seen, size_t partner)
{
    for (size_t i = 0; i < seen->failed_count; i++)
        if (seen->failed[i] == partner)
            return;
    if (seen->failed_count < DECIDE_PARTNERS_MAX)
        seen->failed[seen->failed_count++] = partner;
}

static void decide_nodes(struct decision *decision, size_t test)
{
    for (size_t node = 0; node < decision->tournament->node_count; node++) {
        const struct seen *seen = seen_of(decision, node, test);
        size_t good_count = 0;
        for (size_t i = 0; i < seen->failed_count; i++)
            good_count += seen_of(decision, seen->failed[i], test)->fine;
        if (decision->decided[node] || seen->fine || good_count < decision->tournament->decided_after)
            continue;
        decision->decided[node] = true;
        tell_node(decision, node, test);
    }
}

static void failed_again(struct decision *decision, const struct match *match, size_t test, int rc)
{
    struct failing *failing = failing_of(decision, match->job, test);
    if (!failing && decision->failing_count < DECIDE_PAIRS_MAX) {
        decision->failing[decision->failing_count++] =
            (struct failing){.job = match->job, .test = test, .rc = rc, .count = 1};
    } else if (failing) {
        failing->count = failing->rc == rc ? failing->count + 1 : 1;
        failing->rc = rc;
        if (failing->count == 2) {
            struct text line = {0};
            text_print(&line, "test %s %lu\n", match->job, decision->tournament->tests[test].test_no);
            tell(decision, text_string(&line));
            text_free(&line);
        }
    }
}

void decide_take(struct decision *decision, const struct tournament_step *step, const struct match *match, int rc)
{
    if (!decision->seen)
        return;
    struct seen *client = seen_of(decision, match->client, step->test),
                *server = seen_of(decision, match->server, step->test);
    bool news = rc >= EXIT_PEER || !client->fine || !server->fine;
    if (rc == EXIT_MEASURED) {
        client->fine = server->fine = true;
    } else if (rc >= EXIT_PEER) {
        failed_with(client, match->server);
        failed_with(server, match->client);
        failed_again(decision, match, step->test, rc);
    }
    if (news && decision->failing_count)
        decide_nodes(decision, step->test);
}

bool decide_skips(const struct decision *decision, const struct tournament_step *step, const struct match *match)
{
    if (!decision->seen)
        return false;
    const struct failing *failing = failing_of(decision, match->job, step->test);
    return decision->decided[match->client] || decision->decided[match->server] || (failing && failing->count >= 2);
}
