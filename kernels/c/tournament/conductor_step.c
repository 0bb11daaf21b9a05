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

static const double overdue_s = 3, pong_limit_s = 5, hard_margin_s = 5;

/* A match in hand. */
struct hand {
    const struct match *match;
    uint64_t no;
    bool open;
    char started_utc[UTC_TEXT_BYTES];
};

struct hands {
    const struct tournament_step *step;
    struct hand *list;
    size_t count, open_count;
};

static void hand_close(struct conductor *conductor, struct hands *hands, struct hand *hand, int rc, const char *reason,
                       const char *result, const char *evidence)
{
    struct spooled spooled = {.tournament = &conductor->tournament,
                              .step = hands->step,
                              .match = hand->match,
                              .rc = rc,
                              .reason = reason,
                              .result = result,
                              .evidence = evidence};
    memcpy(spooled.started_utc, hand->started_utc, sizeof spooled.started_utc);
    clock_utc(spooled.ended_utc);
    spool_result(&conductor->spool, &spooled, &conductor->failure);
    if (hand->open)
        hands->open_count--;
    hand->open = false;
}

static void hand_give_up(struct conductor *conductor, struct hands *hands, struct hand *hand, const char *reason)
{
    struct text out = {0};
    message_begin(&out, "stop");
    hand_close(conductor, hands, hand, EXIT_PEER, reason, NULL, NULL);
    member_send(&conductor->members, hand->match->client, &out);
    member_send(&conductor->members, hand->match->server, &out);
    text_free(&out);
}

static void play_message(const struct conductor *conductor, const struct tournament_step *step,
                         const struct match *match, uint64_t no, struct text *out)
{
    const struct game_test *test = tournament_test(&conductor->tournament, step);
    const struct member *server = &conductor->members.list[match->server];
    struct text value = {0};
    message_begin(out, "play");
    message_put_unsigned(out, "no", no);
    message_put(out, "kernel", test->kernel->name);
    message_put(out, "to", server->address);
    message_put_unsigned(out, "port", server->port);
    message_put_number(out, "timeout_s", test->timeout_s);
    message_put_unsigned(out, "evidence_whole", conductor->evidence_whole);
    if (conductor->raw_folder)
        text_print(out, "raw %s/%s-t%lu-r%lu\n", conductor->raw_folder, match->job, test->test_no, step->repetition_no);
    for (size_t i = 0; i < test->kernel->options.count; i++) {
        char key[96];
        text_clear(&value);
        options_value(&test->kernel->options.rows[i], test->options, &value);
        snprintf(key, sizeof key, "option.%s", test->kernel->options.rows[i].name);
        message_put(out, key, text_string(&value));
    }
    text_free(&value);
}

static void hands_open(struct conductor *conductor, struct hands *hands)
{
    struct text out = {0};
    const struct tournament_step *step = hands->step;
    hands->list = memory_new(step->match_count + 1, sizeof *hands->list);
    for (size_t i = 0; i < step->match_count; i++) {
        const struct match *match = &step->matches[i];
        const struct member *client = &conductor->members.list[match->client],
                            *server = &conductor->members.list[match->server];
        if (match->settled)
            continue;
        struct hand *hand = &hands->list[hands->count++];
        *hand = (struct hand){.match = match, .no = ++conductor->play_no, .open = true};
        hands->open_count++;
        if (client->here && server->here) {
            play_message(conductor, step, match, hand->no, &out);
            clock_utc(hand->started_utc);
            if (member_send(&conductor->members, match->client, &out))
                continue;
        }
        hand_close(conductor, hands, hand, EXIT_PEER, client->here ? server->reason : client->reason, NULL, NULL);
    }
    text_free(&out);
}

static void on_message(struct conductor *conductor, void *argument, size_t member, const struct received *message)
{
    struct hands *hands = argument;
    if (!strcmp(received_type(message), "pong"))
        conductor->members.list[member].pinged_ns = 0;
    if (strcmp(received_type(message), "result") != 0)
        return;
    uint64_t no = received_unsigned(message, "no");
    for (size_t i = 0; i < hands->count; i++) {
        struct hand *hand = &hands->list[i];
        if (hand->no != no || !hand->open || hand->match->client != member)
            continue; /* of a match that was given up */
        const char *line = received_get(message, "line"), *evidence = received_get(message, "evidence");
        bool whole = line && *line && json_check(line);
        char reason[96];
        int rc = (int)received_unsigned(message, "rc");
        snprintf(reason, sizeof reason, "the client's process ended with %d and no result", rc);
        hand_close(conductor, hands, hand, whole ? rc : EXIT_PEER, whole ? NULL : reason, whole ? line : NULL,
                   evidence && *evidence && json_check(evidence) ? evidence : NULL);
    }
}

/* Matches whose node has been lost meanwhile. */
static void hands_lost(struct conductor *conductor, struct hands *hands)
{
    for (size_t i = 0; i < hands->count; i++) {
        struct hand *hand = &hands->list[i];
        const struct member *client = &conductor->members.list[hand->match->client],
                            *server = &conductor->members.list[hand->match->server];
        if (hand->open && (!client->here || !server->here))
            hand_give_up(conductor, hands, hand, client->here ? server->reason : client->reason);
    }
}

static void hands_ping(struct conductor *conductor, struct hands *hands)
{
    struct text out = {0};
    message_begin(&out, "ping");
    message_put_unsigned(&out, "no", conductor->play_no);
    for (size_t i = 0; i < hands->count; i++) {
        const size_t both[] = {hands->list[i].match->client, hands->list[i].match->server};
        for (size_t j = 0; hands->list[i].open && j < 2; j++)
            if (member_send(&conductor->members, both[j], &out))
                conductor->members.list[both[j]].pinged_ns = clock_now_ns();
    }
    text_free(&out);
}

static void hands_unanswered(struct conductor *conductor)
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
    struct signalfd_siginfo signal;
    for (size_t i = 0; i < members->count; i++)
        pollers[i] = (struct pollfd){.fd = members->list[i].control.descriptor, .events = POLLIN};
    pollers[members->count] = (struct pollfd){.fd = conductor->signals, .events = POLLIN};
    if (poll(pollers, members->count + 1, clock_remaining_ms(until_ns)) < 0 && errno != EINTR)
        return fail_system(&conductor->failure, "poll");
    while (read(conductor->signals, &signal, sizeof signal) == (ssize_t)sizeof signal) {
        conductor->finish = conductor->finish || signal.ssi_signo == SIGUSR1;
        conductor->stop = conductor->stop || signal.ssi_signo == SIGTERM || signal.ssi_signo == SIGINT;
    }
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
    struct hands hands = {.step = step};
    const struct game_test *test = tournament_test(&conductor->tournament, step);
    uint64_t start_ns = clock_now_ns(), overdue_ns = start_ns + clock_ns_from_s(test->expected_s + overdue_s),
             silent_ns = overdue_ns + clock_ns_from_s(pong_limit_s),
             hard_ns = start_ns + clock_ns_from_s(test->timeout_s + hard_margin_s);
    char late[96];
    snprintf(late, sizeof late, "timed out: no result after %g s", test->timeout_s + hard_margin_s);
    hands_open(conductor, &hands);
    while (hands.open_count && !conductor->stop && !conductor->failure.failed) {
        uint64_t now_ns = clock_now_ns(), next_ns = now_ns < overdue_ns  ? overdue_ns
                                                    : now_ns < silent_ns ? silent_ns
                                                                         : hard_ns;
        if (!conductor_wait(conductor, next_ns < hard_ns ? next_ns : hard_ns, &hands, on_message))
            break;
        now_ns = clock_now_ns();
        if (next_ns == overdue_ns && now_ns >= overdue_ns)
            hands_ping(conductor, &hands);
        if (next_ns == silent_ns && now_ns >= silent_ns)
            hands_unanswered(conductor);
        hands_lost(conductor, &hands);
        for (size_t i = 0; now_ns >= hard_ns && i < hands.count; i++)
            if (hands.list[i].open)
                hand_give_up(conductor, &hands, &hands.list[i], late);
    }
    free(hands.list);
    spool_sync(&conductor->spool, &conductor->failure);
    return !conductor->failure.failed;
}
