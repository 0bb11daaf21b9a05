/*   conductor                                   agent of the client          agent of the server
 *     play                                 ->     a process measures    <->    a session
 *                                          <-     result
 *     nothing 3 s after it was due: ping   ->     pong                         pong; who is silent for 5 s is lost
 *     test's time-out is over: stop        ->     gives up                     gives up
 *
 * A match whose node is lost costs a line that says so; the others of its step, and all later ones, are played. */
#include "tournament/conductor_step.h"

#include "base/clock.h"
#include "evidence/evidence.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const double overdue_s = 3, pong_limit_s = 5, hard_margin_s = 5, job_end_wait_s = 2;

/* One match that is being played. */
struct match_run {
    const struct match *match;
    uint64_t no;
    bool open;
    char started_utc[UTC_TEXT_BYTES];
};

struct match_runs {
    const struct tournament_step *step;
    struct match_run *list;
    size_t count, open_count;
};

static void take_signals(struct conductor *conductor)
{
    struct signalfd_siginfo signal;
    while (read(conductor->signals, &signal, sizeof signal) == (ssize_t)sizeof signal) {
        conductor->finish = conductor->finish || signal.ssi_signo == SIGUSR1;
        conductor->stop = conductor->stop || signal.ssi_signo == SIGTERM || signal.ssi_signo == SIGINT;
    }
}

/* Waits for our own signal, or for the last agent to hang up. */
static void wait_for_the_end(struct conductor *conductor, uint64_t until_ns)
{
    const struct members *members = &conductor->members;
    struct pollfd *pollers = memory_new(members->count + 1, sizeof *pollers);
    size_t left = 0;
    for (size_t i = 0; i < members->count; i++) {
        pollers[i] = (struct pollfd){.fd = members->list[i].control.descriptor, .events = POLLRDHUP};
        left += pollers[i].fd >= 0;
    }
    pollers[members->count] = (struct pollfd){.fd = conductor->signals, .events = POLLIN};
    while (left && !conductor->stop && clock_remaining_ms(until_ns) &&
           poll(pollers, members->count + 1, clock_remaining_ms(until_ns)) > 0) {
        take_signals(conductor);
        for (size_t i = 0; i < members->count; i++)
            if (pollers[i].fd >= 0 && pollers[i].revents) {
                pollers[i].fd = -1;
                left--;
            }
    }
    free(pollers);
    conductor->all_gone = !conductor->stop && !left;
    conductor->stop = conductor->stop || conductor->all_gone;
}

/* Whether a match ended because the whole job does. The end of a job ends the agents too, often before it ends us, and
 * some schedulers tell only them: without this wait, all that was still to come would be failures of healthy nodes.
 * Once per loss, as it takes time. */
static bool job_ends(struct conductor *conductor, bool by_result)
{
    size_t lost = conductor->members.count - conductor->members.here_count;
    if (conductor->stop || (lost == conductor->lost_seen && (!by_result || conductor->waits_left-- <= 0)))
        return conductor->stop;
    conductor->lost_seen = lost;
    uint64_t start_ns = clock_now_ns();
    wait_for_the_end(conductor, start_ns + clock_ns_from_s(job_end_wait_s));
    conductor->waited_ns += clock_now_ns() - start_ns;
    return conductor->stop;
}

static void match_close(struct conductor *conductor, struct match_runs *runs, struct match_run *one, int rc,
                        const char *reason, const char *result, const char *evidence)
{
    struct spooled spooled = {.tournament = &conductor->tournament,
                              .step = runs->step,
                              .match = one->match,
                              .rc = rc,
                              .reason = reason,
                              .result = result,
                              .evidence = evidence};
    memcpy(spooled.started_utc, one->started_utc, sizeof spooled.started_utc);
    clock_utc(spooled.ended_utc);
    spool_result(&conductor->spool, &spooled, &conductor->failure);
    if (conductor->members.list[one->match->client].here && conductor->members.list[one->match->server].here)
        decide_take(&conductor->decision, runs->step, one->match, rc);
    if (one->open)
        runs->open_count--;
    one->open = false;
}

static void match_give_up(struct conductor *conductor, struct match_runs *runs, struct match_run *one,
                          const char *reason)
{
    struct text out = {0};
    message_begin(&out, "stop");
    match_close(conductor, runs, one, EXIT_PEER, reason, NULL, NULL);
    member_send(&conductor->members, one->match->client, &out);
    member_send(&conductor->members, one->match->server, &out);
    text_free(&out);
}

static void play_message(const struct conductor *conductor, const struct tournament_step *step,
                         const struct match *match, uint64_t no, struct text *out)
{
    const struct planned_test *test = tournament_test(&conductor->tournament, step);
    const struct member *server = &conductor->members.list[match->server];
    struct text value = {0};
    message_begin(out, "play");
    message_put_unsigned(out, "no", no);
    message_put(out, "kernel", test->kernel->name);
    message_put(out, "to", server->address);
    message_put_unsigned(out, "port", server->port);
    message_put_number(out, "timeout_s", test->timeout_s);
    message_put_unsigned(out, "evidence_full", conductor->evidence_full);
    if (conductor->raw_folder)
        text_print(out, "raw %s/%s-t%lu-r%lu\n", conductor->raw_folder, match->job, test->test_no, step->repetition_no);
    if (((const struct common_options *)test->options)->capture)
        text_print(out, "capture captures/%s-t%lu-r%lu\n", match->job, test->test_no, step->repetition_no);
    spool_sizes_name(&value, &conductor->tournament, step, match);
    message_put(out, "sizes", text_string(&value));
    message_put(out, "sizes_done", match->sizes_done ? match->sizes_done : "");
    for (size_t i = 0; i < test->kernel->options.count; i++) {
        char key[96];
        text_clear(&value);
        options_value(&test->kernel->options.rows[i], test->options, &value);
        snprintf(key, sizeof key, "option.%s", test->kernel->options.rows[i].name);
        message_put(out, key, text_string(&value));
    }
    text_free(&value);
}

static void matches_open(struct conductor *conductor, struct match_runs *runs)
{
    struct text out = {0};
    const struct tournament_step *step = runs->step;
    runs->list = memory_new(step->match_count + 1, sizeof *runs->list);
    for (size_t i = 0; i < step->match_count; i++) {
        const struct match *match = &step->matches[i];
        const struct member *client = &conductor->members.list[match->client],
                            *server = &conductor->members.list[match->server];
        if (match->settled || decide_skips(&conductor->decision, step, match))
            continue;
        struct match_run *one = &runs->list[runs->count++];
        *one = (struct match_run){.match = match, .no = ++conductor->play_no, .open = true};
        runs->open_count++;
        if (client->here && server->here) {
            play_message(conductor, step, match, one->no, &out);
            clock_utc(one->started_utc);
            if (member_send(&conductor->members, match->client, &out))
                continue;
        }
        if (job_ends(conductor, false))
            break;
        match_close(conductor, runs, one, EXIT_PEER, client->here ? server->reason : client->reason, NULL, NULL);
    }
    text_free(&out);
}

static void on_message(struct conductor *conductor, void *argument, size_t member, const struct received *message)
{
    struct match_runs *runs = argument;
    if (!strcmp(received_type(message), "pong"))
        conductor->members.list[member].pinged_ns = 0;
    if (strcmp(received_type(message), "result") != 0)
        return;
    uint64_t no = received_unsigned(message, "no");
    for (size_t i = 0; i < runs->count; i++) {
        struct match_run *one = &runs->list[i];
        if (one->no != no || !one->open || one->match->client != member)
            continue; /* of a match that was given up */
        const char *line = received_get(message, "line"), *evidence = received_get(message, "evidence");
        bool whole = line && *line && json_check(line);
        char reason[96];
        int rc = (int)received_unsigned(message, "rc");
        if (rc == EXIT_PEER && job_ends(conductor, true))
            return;
        snprintf(reason, sizeof reason, "the client's process ended with %d and no result", rc);
        match_close(conductor, runs, one, whole ? rc : EXIT_PEER, whole ? NULL : reason, whole ? line : NULL,
                    evidence && *evidence && json_check(evidence) ? evidence : NULL);
    }
}

/* Matches whose node has been lost meanwhile. */
static void matches_lost(struct conductor *conductor, struct match_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++) {
        struct match_run *one = &runs->list[i];
        const struct member *client = &conductor->members.list[one->match->client],
                            *server = &conductor->members.list[one->match->server];
        if (one->open && (!client->here || !server->here) && !job_ends(conductor, false))
            match_give_up(conductor, runs, one, client->here ? server->reason : client->reason);
    }
}

static void matches_ping(struct conductor *conductor, struct match_runs *runs)
{
    struct text out = {0};
    message_begin(&out, "ping");
    message_put_unsigned(&out, "no", conductor->play_no);
    for (size_t i = 0; i < runs->count; i++) {
        const size_t both[] = {runs->list[i].match->client, runs->list[i].match->server};
        for (size_t j = 0; runs->list[i].open && j < 2; j++)
            if (member_send(&conductor->members, both[j], &out))
                conductor->members.list[both[j]].pinged_ns = clock_now_ns();
    }
    text_free(&out);
}

static void members_unanswered(struct conductor *conductor)
{
    for (size_t i = 0; i < conductor->members.count; i++) {
        struct member *member = &conductor->members.list[i];
        if (member->pinged_ns)
            member_lost(&conductor->members, i, "no answer for %g s", pong_limit_s);
    }
}

bool conductor_wait(struct conductor *conductor, uint64_t until_ns, void *argument,
                    void (*take)(struct conductor *conductor, void *argument, size_t member,
                                 const struct received *message))
{
    struct members *members = &conductor->members;
    struct pollfd *pollers = conductor->pollers;
    for (size_t i = 0; i < members->count; i++)
        pollers[i] = (struct pollfd){.fd = members->list[i].control.descriptor, .events = POLLIN};
    pollers[members->count] = (struct pollfd){.fd = conductor->signals, .events = POLLIN};
    if (poll(pollers, members->count + 1, clock_remaining_ms(until_ns)) < 0 && errno != EINTR)
        return fail_system(&conductor->failure, "poll");
    take_signals(conductor);
    for (size_t i = 0; i < members->count; i++) {
        struct received message;
        struct failure failure = {0};
        if (!pollers[i].revents || members->list[i].control.descriptor < 0)
            continue;
        if (control_receive(&members->list[i].control, &message, clock_now_ns() + 5 * NS_PER_S, &failure)) {
            take(conductor, argument, i, &message);
            received_free(&message);
        } else {
            member_lost(members, i, "%s", failure.message);
        }
    }
    return !conductor->failure.failed;
}

bool conductor_step(struct conductor *conductor, const struct tournament_step *step)
{
    struct match_runs runs = {.step = step};
    const struct planned_test *test = tournament_test(&conductor->tournament, step);
    uint64_t start_ns = clock_now_ns(), overdue_ns = start_ns + clock_ns_from_s(test->expected_s + overdue_s),
             silent_ns = overdue_ns + clock_ns_from_s(pong_limit_s),
             hard_ns = start_ns + clock_ns_from_s(test->timeout_s + hard_margin_s);
    char late[96];
    snprintf(late, sizeof late, "timed out: no result after %g s", test->timeout_s + hard_margin_s);
    matches_open(conductor, &runs);
    while (runs.open_count && !conductor->stop && !conductor->failure.failed) {
        uint64_t now_ns = clock_now_ns(), next_ns = now_ns < overdue_ns  ? overdue_ns
                                                    : now_ns < silent_ns ? silent_ns
                                                                         : hard_ns;
        if (!conductor_wait(conductor, next_ns < hard_ns ? next_ns : hard_ns, &runs, on_message))
            break;
        overdue_ns += conductor->waited_ns;
        silent_ns += conductor->waited_ns;
        hard_ns += conductor->waited_ns;
        conductor->waited_ns = 0;
        now_ns = clock_now_ns();
        if (next_ns == overdue_ns && now_ns >= overdue_ns)
            matches_ping(conductor, &runs);
        if (next_ns == silent_ns && now_ns >= silent_ns)
            members_unanswered(conductor);
        matches_lost(conductor, &runs);
        for (size_t i = 0; now_ns >= hard_ns && i < runs.count; i++)
            if (runs.list[i].open)
                match_give_up(conductor, &runs, &runs.list[i], late);
    }
    free(runs.list);
    spool_sync(&conductor->spool, &conductor->failure);
    return !conductor->failure.failed;
}
