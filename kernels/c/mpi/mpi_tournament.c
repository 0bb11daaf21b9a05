/*   all ranks     read the tournament; rank 0 says what its spool has settled, and writes the facts of all nodes
 *   each step     barrier | the two ranks of each match measure on a communicator of their own | barrier
 *                 clients send their lines to rank 0, which writes them
 *
 * Whoever waits sleeps: a rank that spins in a barrier would be load on its node. When a rank is lost the launcher ends
 * the step; started again without its node, it goes on from the spool. A match that was begun twice and never settled
 * is not begun a third time. */
#include "mpi/mpi_tournament.h"

#include "base/signals.h"
#include "describe/arguments.h"
#include "engine/keep.h"
#include "engine/result.h"
#include "facts/facts.h"
#include "mpi/finish.h"
#include "mpi/mpi_nodes.h"
#include "mpi/mpi_run.h"
#include "mpi/mpi_start.h"
#include "tournament/spool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG_LINE = 5, BEGUN_MAX = 2, NOBODY = -1 };
static const double step_margin_s = 60; /* what barriers and lines may take on nodes that are busy */
/* A rank that leaves before the others have finished makes the launcher end the step as failed, and one may come late
 * because its node is busy; but who waits for an MPI that does not end holds all the nodes. */
static const unsigned finish_limit_s = 20;

struct mpi_world {
    const struct program *program;
    struct tournament tournament;
    struct spool spool; /* rank 0 */
    struct failure failure;
    struct text facts; /* of this rank's node, when they are kept */
    const char *tournament_path, *spool_path, *nodes, *interface, *finish_path, *done_path, *facts_folder;
    bool evidence_full;
    int rank, size;
    int *ranks;                            /* by node; NOBODY: not in this step */
    const struct tournament_step *matched; /* the step whose pairs `pair` was made for */
    MPI_Comm pair;
};

static void sleep_us(long us)
{
    struct timespec pause = {.tv_nsec = us * 1000};
    nanosleep(&pause, NULL);
}

static void barrier_quiet(void)
{
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (MPI_Test(&request, &done, MPI_STATUS_IGNORE); !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE))
        sleep_us(500);
}

static bool world_arguments(struct mpi_world *world, int argc, char **argv)
{
    const char *evidence = NULL;
    const struct flag flags[] = {{"interface", &world->interface}, {"tournament", &world->tournament_path},
                                 {"spool", &world->spool_path},    {"nodes", &world->nodes},
                                 {"evidence", &evidence},          {"finish-file", &world->finish_path},
                                 {"done-file", &world->done_path}, {"facts-dir", &world->facts_folder}};
    if (!arguments_parse(argc, argv, 2, flags, ROW_COUNT(flags), NULL, NULL, &world->failure))
        return false;
    if (!world->tournament_path || !world->spool_path)
        return fail(&world->failure, EXIT_USAGE, "%s: found nothing: allowed: a file",
                    world->tournament_path ? "spool" : "tournament");
    if (world->interface && !*world->interface)
        world->interface = NULL;
    return arguments_full("evidence", evidence, &world->evidence_full, &world->failure);
}

/* The node of this rank by name: the scheduler's, or the machine's. node_count when it is none of the tournament. */
static int node_by_name(const struct tournament *tournament)
{
    char name[256];
    mpi_node_name(name, sizeof name);
    return (int)tournament_node(tournament, name);
}

/* Node number `rank` of the list; where several ranks share one machine, names do not tell them apart. */
static int node_by_place(const struct tournament *tournament, const char *nodes, int rank)
{
    char name[256];
    return (int)(mpi_node_listed(nodes, rank, name, sizeof name) ? tournament_node(tournament, name)
                                                                 : tournament->node_count);
}

static bool world_ranks(struct mpi_world *world)
{
    int count = (int)world->tournament.node_count, mine = node_by_name(&world->tournament);
    int *found = memory_new((size_t)world->size, sizeof *found);
    world->ranks = memory_new((size_t)count + 1, sizeof *world->ranks);
    for (int attempt = 0; attempt < 2; attempt++) {
        bool distinct = true;
        MPI_Allgather(&mine, 1, MPI_INT, found, 1, MPI_INT, MPI_COMM_WORLD);
        for (int i = 0; i <= count; i++)
            world->ranks[i] = NOBODY;
        for (int i = 0; i < world->size; i++) {
            distinct = distinct && found[i] < count && world->ranks[found[i]] == NOBODY;
            world->ranks[found[i]] = i;
        }
        if (distinct) {
            free(found);
            return true;
        }
        mine = node_by_place(&world->tournament, world->nodes, world->rank);
    }
    free(found);
    return fail(&world->failure, EXIT_USAGE, "%d ranks: neither their nodes' names nor --nodes say which is which",
                world->size);
}

/* Each rank took the facts of its node before MPI was there (they start programs); rank 0 writes those of all. */
static void world_facts(struct mpi_world *world)
{
    size_t size = (size_t)world->size;
    int length = (int)strlen(text_string(&world->facts)) + 1, total = 0;
    int *lengths = memory_new(size, sizeof *lengths), *places = memory_new(size, sizeof *places);
    MPI_Gather(&length, 1, MPI_INT, lengths, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (size_t i = 0; world->rank == 0 && i < size; i++) {
        places[i] = total;
        total += lengths[i];
    }
    char *all = memory_new((size_t)total + 1, 1);
    MPI_Gatherv(text_string(&world->facts), length, MPI_CHAR, all, lengths, places, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (size_t i = 0; world->rank == 0 && i < world->tournament.node_count; i++)
        if (world->ranks[i] != NOBODY)
            facts_write(world->facts_folder, world->tournament.nodes[i], all + places[world->ranks[i]]);
    free(all);
    free(lengths);
    free(places);
}

/* What rank 0 read from its spool, for all. */
static void world_marks(struct mpi_world *world)
{
    struct tournament *tournament = &world->tournament;
    for (size_t i = 0; i < tournament->step_count; i++) {
        struct tournament_step *step = &tournament->steps[i];
        unsigned char *marks = memory_new(step->match_count + 1, 1);
        for (size_t j = 0; j < step->match_count; j++)
            marks[j] = step->matches[j].settled ? 255 : (unsigned char)step->matches[j].begun_count;
        MPI_Bcast(marks, (int)step->match_count, MPI_UNSIGNED_CHAR, 0, MPI_COMM_WORLD);
        for (size_t j = 0; j < step->match_count; j++) {
            step->matches[j].settled = marks[j] == 255;
            step->matches[j].begun_count = marks[j];
        }
        free(marks);
    }
}

static void settle(struct mpi_world *world, const struct tournament_step *step, struct match *match, const char *reason)
{
    struct spooled spooled = {
        .tournament = &world->tournament, .step = step, .match = match, .rc = EXIT_PEER, .reason = reason};
    match->settled = true;
    clock_utc(spooled.ended_utc);
    if (world->rank == 0)
        spool_result(&world->spool, &spooled, &world->failure);
}

/* Matches that cannot be played now get their line; the others are noted as begun. */
static void step_begin(struct mpi_world *world, struct tournament_step *step)
{
    for (size_t i = 0; i < step->match_count; i++) {
        struct match *match = &step->matches[i];
        bool client = world->ranks[match->client] != NOBODY, server = world->ranks[match->server] != NOBODY;
        char reason[320];
        if (match->settled)
            continue;
        snprintf(reason, sizeof reason, "%.255s: its rank was lost",
                 world->tournament.nodes[client ? match->server : match->client]);
        if (!client || !server)
            settle(world, step, match, reason);
        else if (match->begun_count >= BEGUN_MAX)
            settle(world, step, match, "begun twice, and both times a rank was lost meanwhile");
        else if (world->rank == 0)
            spool_begun(&world->spool, &world->tournament, step, match, &world->failure);
    }
}

static bool same_pairs(const struct tournament_step *one, const struct tournament_step *other)
{
    if (!one || one->match_count != other->match_count)
        return false;
    for (size_t i = 0; i < one->match_count; i++)
        if (one->matches[i].client != other->matches[i].client || one->matches[i].server != other->matches[i].server)
            return false;
    return true;
}

static struct match *my_match(const struct mpi_world *world, const struct tournament_step *step)
{
    for (size_t i = 0; i < step->match_count; i++)
        if (world->ranks[step->matches[i].client] == world->rank ||
            world->ranks[step->matches[i].server] == world->rank)
            return &step->matches[i];
    return NULL;
}

/* One communicator a pair; it is made again only when the pairs change. */
static void step_communicators(struct mpi_world *world, const struct tournament_step *step)
{
    const struct match *mine = my_match(world, step);
    if (same_pairs(world->matched, step))
        return;
    if (world->pair != MPI_COMM_NULL)
        MPI_Comm_free(&world->pair);
    bool both = mine && world->ranks[mine->client] != NOBODY && world->ranks[mine->server] != NOBODY;
    int color = both ? world->ranks[mine->client] : MPI_UNDEFINED;
    MPI_Comm_split(MPI_COMM_WORLD, color, both && world->ranks[mine->server] == world->rank, &world->pair);
    world->matched = step;
}

static void copy_options(const struct kernel *kernel, const void *from, void *to)
{
    memcpy(to, from, kernel->options.struct_bytes);
}

/* The client's lines: exit code, start, end, result, all counters. */
static void match_play(struct mpi_world *world, const struct tournament_step *step, const struct match *match,
                       struct text *lines)
{
    struct run run;
    struct text evidence = {0};
    char now[UTC_TEXT_BYTES];
    const struct planned_test *test = tournament_test(&world->tournament, step);
    bool is_server = world->ranks[match->server] == world->rank;
    clock_utc(now);
    run_begin(&run, world->program, test->kernel, is_server);
    run.communicator = &world->pair;
    run.server_rank = 1;
    run.keep.evidence_asked = world->evidence_full;
    run.sizes_done = match->sizes_done;
    copy_options(test->kernel, test->options, run.options);
    spool_sizes_name(&evidence, &world->tournament, step, match);
    struct result_out out = {.descriptor = is_server ? -1 : spool_sizes_open(text_string(&evidence))};
    text_clear(&evidence);
    int code = mpi_run(&run, world->interface, is_server ? NULL : &out);
    if (is_server && run.failure.failed)
        fail_print(&run.failure);
    if (!is_server) {
        text_print(lines, "%d\n%s\n", code, now);
        clock_utc(now);
        text_print(lines, "%s\n", now);
        if (world->evidence_full)
            keep_evidence(&run, &evidence);
        text_print(lines, "%s\n%s\n", text_string(&out.json), text_string(&evidence));
        text_free(&out.json);
        if (out.descriptor >= 0)
            close(out.descriptor);
    }
    text_free(&evidence);
    run_end(&run);
}

static void line_write(struct mpi_world *world, const struct tournament_step *step, const struct match *match,
                       char *lines)
{
    char *parts[5], *rest = lines;
    struct spooled spooled = {.tournament = &world->tournament, .step = step, .match = match};
    for (size_t i = 0; i < 5; i++) {
        parts[i] = rest;
        rest += strcspn(rest, "\n");
        if (*rest)
            *rest++ = '\0';
    }
    bool whole = json_check(parts[3]);
    spooled.rc = atoi(parts[0]);
    spooled.reason = whole ? NULL : "the client's rank sent no result";
    spooled.result = whole ? parts[3] : NULL;
    spooled.evidence = *parts[4] && json_check(parts[4]) ? parts[4] : NULL;
    snprintf(spooled.started_utc, sizeof spooled.started_utc, "%s", parts[1]);
    snprintf(spooled.ended_utc, sizeof spooled.ended_utc, "%s", parts[2]);
    spool_result(&world->spool, &spooled, &world->failure);
}

/* Rank 0 collects the lines of all clients. */
static void step_collect(struct mpi_world *world, const struct tournament_step *step, const struct match *mine,
                         struct text *lines)
{
    bool is_client = mine && world->ranks[mine->client] == world->rank;
    if (world->rank != 0) {
        if (is_client)
            MPI_Send(lines->data, (int)lines->length + 1, MPI_CHAR, 0, TAG_LINE, MPI_COMM_WORLD);
        return;
    }
    for (size_t i = 0; i < step->match_count; i++) {
        const struct match *match = &step->matches[i];
        MPI_Status status;
        int length = 0, from = world->ranks[match->client];
        if (match->settled)
            continue;
        if (from == 0) {
            line_write(world, step, match, lines->data);
            continue;
        }
        MPI_Probe(from, TAG_LINE, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &length);
        char *received = memory_new((size_t)length + 1, 1);
        MPI_Recv(received, length, MPI_CHAR, from, TAG_LINE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        line_write(world, step, match, received);
        free(received);
    }
}

/* Rank 0 says whether there is a next step. */
static bool step_end(struct mpi_world *world)
{
    int go_on = 1;
    if (world->rank == 0) {
        spool_sync(&world->spool, &world->failure);
        if (world->finish_path && access(world->finish_path, F_OK) == 0)
            fail(&world->failure, EXIT_INVALID, "ended early: asked to, after the current step");
        go_on = !world->failure.failed;
    }
    MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return go_on || fail(&world->failure, EXIT_INVALID, "rank 0 ended the tournament");
}

static bool world_step(struct mpi_world *world, struct tournament_step *step)
{
    struct text lines = {0};
    step_begin(world, step);
    if (!tournament_ours(&world->tournament, step))
        return true;
    alarm((unsigned)(tournament_test(&world->tournament, step)->timeout_s + step_margin_s));
    step_communicators(world, step);
    barrier_quiet();
    struct match *mine = my_match(world, step);
    if (mine && mine->settled)
        mine = NULL;
    if (mine)
        match_play(world, step, mine, &lines);
    barrier_quiet();
    step_collect(world, step, mine, &lines);
    text_free(&lines);
    alarm(0);
    return step_end(world);
}

/* All is settled and on the disk: whatever becomes of the step now, nothing has to be played again. */
static bool world_done(struct mpi_world *world)
{
    if (world->rank != 0 || !world->done_path)
        return true;
    FILE *file = fopen(world->done_path, "w");
    if (!file || fclose(file) != 0)
        return fail_system(&world->failure, "%s", world->done_path);
    return true;
}

static bool world_run(struct mpi_world *world)
{
    bool ok = !world->failure.failed &&
              tournament_read(world->tournament_path, world->program, &world->tournament, &world->failure);
    if (ok && world->rank == 0)
        ok = spool_mark(world->spool_path, &world->tournament, &world->failure) &&
             spool_open(&world->spool, world->spool_path, &world->failure);
    int mine = ok, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!all)
        return fail(&world->failure, EXIT_PEER, "another rank could not start; its own message says why");
    if (!world_ranks(world))
        return false;
    if (world->facts_folder)
        world_facts(world);
    world_marks(world);
    for (size_t i = 0; i < world->tournament.step_count; i++)
        if (tournament_ours(&world->tournament, &world->tournament.steps[i]) &&
            !world_step(world, &world->tournament.steps[i]))
            return false;
    return world_done(world);
}

int mpi_tournament_main(const struct program *program, int argc, char **argv)
{
    struct mpi_world world = {.program = program, .failure = {.state = "tournament"}, .pair = MPI_COMM_NULL};
    if (world_arguments(&world, argc, argv) && world.facts_folder)
        facts_collect("", world.interface ? world.interface : "", &world.facts);
    mpi_start(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    signals_install();
    bool ok = world_run(&world);
    if (!ok)
        fail_print(&world.failure);
    if (world.pair != MPI_COMM_NULL)
        MPI_Comm_free(&world.pair);
    tournament_free(&world.tournament);
    text_free(&world.facts);
    free(world.ranks);
    return ok ? mpi_finish(EXIT_MEASURED, finish_limit_s)
              : mpi_finish((int)world.failure.exit_code, MPI_FINISH_LIMIT_S);
}
