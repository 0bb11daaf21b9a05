/* Reads the tournament, waits until all agents are here (or the time for it is over), plays step after step, says
 * `end`.
 *
 *   join (60 s) -> step ... step -> end          what was measured is in the spool at once, whatever comes then
 *
 * USR1, or a file that appears, ends the tournament after the current step; TERM and INT end it now, and so does the
 * loss of all agents. */
#include "tournament/conductor.h"

#include "base/clock.h"
#include "describe/arguments.h"
#include "engine/server.h"
#include "engine/sessions.h"
#include "tournament/conductor_step.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct conductor_words {
    const char *interface, *bind_to, *ports, *secret, *tournament, *spool, *facts, *raw, *evidence, *join, *finish;
    double join_timeout_s;
    bool evidence_full;
    struct port_range range;
};

static bool conductor_arguments(struct conductor_words *words, int argc, char **argv, struct address *address,
                                struct failure *failure)
{
    const struct flag flags[] = {
        {"interface", &words->interface}, {"bind", &words->bind_to},          {"ports", &words->ports},
        {"secret-file", &words->secret},  {"tournament", &words->tournament}, {"spool", &words->spool},
        {"facts-dir", &words->facts},     {"raw-dir", &words->raw},           {"evidence", &words->evidence},
        {"join-timeout-s", &words->join}, {"finish-file", &words->finish}};
    if (!arguments_parse(argc, argv, 2, flags, ROW_COUNT(flags), NULL, NULL, failure))
        return false;
    if (!words->tournament || !words->spool || !words->secret)
        return fail(failure, EXIT_USAGE, "%s: found nothing: allowed: a file",
                    !words->tournament ? "tournament"
                    : !words->spool    ? "spool"
                                       : "secret-file");
    if (!arguments_full("evidence", words->evidence, &words->evidence_full, failure))
        return false;
    words->join_timeout_s = 60;
    return (!words->ports || arguments_ports(words->ports, &words->range, failure)) &&
           (!words->join ||
            arguments_number("join-timeout-s", words->join, 0.1, 1e5, &words->join_timeout_s, failure)) &&
           sessions_address(words->interface, words->bind_to, address, failure);
}

static bool conductor_listen(struct conductor *conductor, const struct conductor_words *words, struct address *address)
{
    struct rlimit files;
    struct members *members = &conductor->members;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* a connection an agent */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    members->listener = control_socket(address, &conductor->failure);
    if (members->listener < 0 ||
        !socket_bind_range(members->listener, true, address, words->range, &conductor->failure))
        return false;
    fcntl(members->listener, F_SETFL, O_NONBLOCK);
    return server_print_ready(words->interface, address, &conductor->failure);
}

/* One turn of the waiting: what connections say, then new ones. */
static bool join_turn(struct conductor *conductor, struct pollfd *pollers, uint64_t deadline_ns)
{
    struct members *members = &conductor->members;
    size_t count = members->arrival_count;
    int wait_ms = clock_remaining_ms(deadline_ns);
    pollers[0] = (struct pollfd){.fd = members->listener, .events = POLLIN};
    pollers[1] = (struct pollfd){.fd = conductor->signals, .events = POLLIN};
    for (size_t i = 0; i < count; i++)
        pollers[i + 2] = (struct pollfd){.fd = members->arrivals[i].control.descriptor, .events = POLLIN};
    if (poll(pollers, count + 2, wait_ms < 1000 ? wait_ms : 1000) < 0 && errno != EINTR)
        return fail_system(&conductor->failure, "poll");
    if (pollers[1].revents)
        return fail(&conductor->failure, EXIT_INVALID, "ended by a signal");
    for (size_t i = count; i > 0; i--) /* from the last: who leaves is replaced by the last */
        if (pollers[i + 1].revents)
            members_arrival(members, i - 1, hpcq_build_id);
    members_late(members);
    if (pollers[0].revents)
        members_accept(members);
    return true;
}

static bool conductor_join(struct conductor *conductor, double limit_s)
{
    struct members *members = &conductor->members;
    uint64_t deadline_ns = clock_now_ns() + clock_ns_from_s(limit_s);
    conductor->failure.state = "join";
    struct pollfd *pollers = memory_new(members->arrival_max + 2, sizeof *pollers);
    bool ok = true;
    while (ok && members->here_count < members->count && clock_remaining_ms(deadline_ns))
        ok = join_turn(conductor, pollers, deadline_ns);
    free(pollers);
    if (!ok)
        return false;
    members_close(members, limit_s);
    secret_wipe(conductor->secret);
    return members->here_count >= 2 ||
           fail(&conductor->failure, EXIT_PEER, "%zu of %zu agents came within %g s: a pair needs two",
                members->here_count, members->count, limit_s);
}

static bool conductor_play(struct conductor *conductor, const char *finish_path)
{
    conductor->failure.state = "play";
    conductor->lost_seen = conductor->members.count - conductor->members.here_count;
    conductor->waits_left = 4;
    for (size_t i = 0; i < conductor->tournament.step_count; i++) {
        const struct tournament_step *step = &conductor->tournament.steps[i];
        if (!tournament_ours(&conductor->tournament, step))
            continue;
        if (!conductor_step(conductor, step))
            return false;
        if (conductor->all_gone)
            return fail(&conductor->failure, EXIT_PEER, "all agents are gone");
        conductor->finish = conductor->finish || (finish_path && access(finish_path, F_OK) == 0);
        if (conductor->stop || conductor->finish)
            return fail(&conductor->failure, EXIT_INVALID, "ended early: %s",
                        conductor->stop ? "by a signal" : "asked to, after the current step");
    }
    return true;
}

static bool conductor_run(struct conductor *conductor, int argc, char **argv)
{
    struct conductor_words words = {0};
    struct address address;
    struct failure *failure = &conductor->failure;
    struct secret secret;
    if (!conductor_arguments(&words, argc, argv, &address, failure) || !secret_read(words.secret, &secret, failure) ||
        !tournament_read(words.tournament, conductor->program, &conductor->tournament, failure) ||
        !spool_mark(words.spool, &conductor->tournament, failure) ||
        !spool_open(&conductor->spool, words.spool, failure) || (conductor->signals = sessions_signals(failure)) < 0)
        return false;
    conductor->raw_folder = words.raw;
    conductor->evidence_full = words.evidence_full;
    conductor->members.secret = conductor->secret = &secret;
    conductor->members.facts_folder = words.facts;
    conductor->pollers = memory_new(conductor->tournament.node_count + 1, sizeof *conductor->pollers);
    members_begin(&conductor->members, &conductor->tournament);
    decide_begin(&conductor->decision, &conductor->tournament, words.spool);
    bool ok = conductor_listen(conductor, &words, &address) && conductor_join(conductor, words.join_timeout_s) &&
              conductor_play(conductor, words.finish);
    members_end(&conductor->members);
    decide_end(&conductor->decision);
    free(conductor->pollers);
    return ok;
}

int conductor_main(const struct program *program, int argc, char **argv)
{
    struct conductor conductor = {.program = program, .failure = {.state = "conductor"}};
    signal(SIGPIPE, SIG_IGN);
    bool ok = conductor_run(&conductor, argc, argv);
    tournament_free(&conductor.tournament);
    if (!ok)
        fail_print(&conductor.failure);
    return ok ? EXIT_MEASURED : (int)conductor.failure.exit_code;
}
