/* Which matches of a tournament tell nothing new. */
#include "base/fail.h"
#include "check.h"
#include "tournament/decide.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tournament six_nodes(struct planned_test *tests)
{
    static char *names[] = {"n1", "n2", "n3", "n4", "n5", "n6"};
    tests[0].test_no = 1;
    tests[1].test_no = 2;
    return (struct tournament){.nodes = names, .tests = tests, .node_count = 6, .test_count = 2, .decided_after = 3};
}

static void check_node(void)
{
    struct planned_test tests[2] = {0};
    struct tournament tournament = six_nodes(tests);
    struct tournament_step step = {.repetition_no = 1};
    struct decision decision;
    char folder[] = "/tmp/hpcq-decide-XXXXXX", spool[64], told[64], line[200] = "";
    CHECK(mkdtemp(folder) != NULL);
    snprintf(spool, sizeof spool, "%s/spool.jsonl", folder);
    snprintf(told, sizeof told, "%s/decided", folder);
    decide_begin(&decision, &tournament, spool);
    struct match next = {.job = "j9", .client = 1, .server = 5}, other = {.job = "j8", .client = 0, .server = 5};
    for (size_t partner = 2; partner < 5; partner++) {
        struct match bad = {.job = partner == 2 ? "j2" : partner == 3 ? "j3" : "j4", .client = partner, .server = 1};
        decide_take(&decision, &step, &bad, EXIT_PEER);
        CHECK(!decide_skips(&decision, &step, &next)); /* the partners are not known to be fine yet */
    }
    for (size_t partner = 2; partner < 5; partner++) {
        struct match good = {.job = "jg", .client = partner, .server = 0};
        decide_take(&decision, &step, &good, EXIT_MEASURED);
        CHECK(decide_skips(&decision, &step, &next) == (partner == 4));
    }
    CHECK(!decide_skips(&decision, &step, &other));
    step.test = 1; /* all tests of the node, since its other pairs are dropped */
    CHECK(decide_skips(&decision, &step, &next));
    decide_end(&decision);
    FILE *file = fopen(told, "r");
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
    CHECK_TEXT(line, "node n2 n3 n4 n5\n");
    if (file)
        fclose(file);
    unlink(told);
    rmdir(folder);
}

static void check_fine_once(void)
{
    struct planned_test tests[2] = {0};
    struct tournament tournament = six_nodes(tests);
    struct tournament_step step = {.repetition_no = 1};
    struct decision decision;
    decide_begin(&decision, &tournament, "/nowhere/spool.jsonl");
    struct match good = {.job = "j1", .client = 1, .server = 0}, next = {.job = "j9", .client = 1, .server = 5};
    decide_take(&decision, &step, &good, EXIT_MEASURED);
    for (size_t partner = 2; partner < 5; partner++) {
        struct match fine = {.job = "j7", .client = partner, .server = 0},
                     bad = {.job = "j8", .client = 1, .server = partner};
        decide_take(&decision, &step, &fine, EXIT_MEASURED);
        decide_take(&decision, &step, &bad, EXIT_PEER);
    }
    CHECK(!decide_skips(&decision, &step, &next)); /* a node that is fine with somebody is half dead at most */
    decide_end(&decision);
}

static void check_twice(void)
{
    struct planned_test tests[2] = {0};
    struct tournament tournament = six_nodes(tests);
    struct tournament_step step = {.repetition_no = 1};
    struct decision decision;
    decide_begin(&decision, &tournament, "/nowhere/spool.jsonl");
    struct match pair = {.job = "j1", .client = 1, .server = 0};
    decide_take(&decision, &step, &pair, EXIT_PEER);
    CHECK(!decide_skips(&decision, &step, &pair));
    decide_take(&decision, &step, &pair, EXIT_SYSTEM); /* not the same way */
    CHECK(!decide_skips(&decision, &step, &pair));
    decide_take(&decision, &step, &pair, EXIT_SYSTEM);
    CHECK(decide_skips(&decision, &step, &pair));
    step.test = 1;
    CHECK(!decide_skips(&decision, &step, &pair));
    decide_end(&decision);
    tournament.decided_after = 0;
    decide_begin(&decision, &tournament, "/nowhere/spool.jsonl");
    step.test = 0;
    for (int time = 0; time < 4; time++)
        decide_take(&decision, &step, &pair, EXIT_PEER);
    CHECK(!decide_skips(&decision, &step, &pair));
    decide_end(&decision);
}

void check_decide(void)
{
    check_node();
    check_fine_once();
    check_twice();
}
