/* See members.h. An arrival is read only once it has said something, so one that says nothing holds nobody up. */
#include "tournament/members.h"

#include "facts/facts.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t answer_ns = 10 * NS_PER_S; /* for what the other side must say at once */
enum { ROOM_FOR_STRANGERS = 64, REFUSALS_SAID_MAX = 20 };

void members_begin(struct members *members, const struct tournament *tournament)
{
    members->count = tournament->node_count;
    members->list = memory_new(members->count + 1, sizeof *members->list);
    members->arrival_max = members->count + ROOM_FOR_STRANGERS;
    members->arrivals = memory_new(members->arrival_max, sizeof *members->arrivals);
    for (size_t i = 0; i < members->count; i++) {
        members->list[i].node = tournament->nodes[i];
        members->list[i].control.descriptor = -1;
    }
}

void member_lost(struct members *members, size_t index, const char *format, ...)
{
    struct member *member = &members->list[index];
    va_list arguments;
    if (member->control.descriptor >= 0)
        close(member->control.descriptor);
    member->control.descriptor = -1;
    member->pinged_ns = 0;
    if (member->here)
        members->here_count--;
    member->here = false;
    if (member->reason[0])
        return;
    int length = snprintf(member->reason, sizeof member->reason, "%.100s: ", member->node);
    va_start(arguments, format);
    vsnprintf(member->reason + length, sizeof member->reason - (size_t)length, format, arguments);
    va_end(arguments);
    fprintf(stderr, "warning: lost: %s\n", member->reason);
}

bool member_send(struct members *members, size_t index, const struct text *message)
{
    struct member *member = &members->list[index];
    struct failure failure = {0};
    if (!member->here)
        return false;
    if (control_send(&member->control, message, clock_now_ns() + answer_ns, &failure))
        return true;
    member_lost(members, index, "%s", failure.message);
    return false;
}

/* Said for the first few: a flood fills no log. */
static void refused(struct members *members, const struct address *host, const char *why)
{
    char text[ADDRESS_TEXT_BYTES];
    address_text(host, text);
    if (members->refused_count++ < REFUSALS_SAID_MAX)
        fprintf(stderr, "warning: a connection of %s was refused: %s\n", text, why);
}

static void arrival_leave(struct members *members, size_t index, bool closing)
{
    struct arrival *arrival = &members->arrivals[index];
    if (closing)
        close(arrival->control.descriptor);
    text_free(&arrival->control.arrived);
    *arrival = members->arrivals[--members->arrival_count];
}

/* Many agents may share a host, in tests or behind one address; strangers get a quarter of their room. Whoever of a
 * crowded host has been there for longest makes room, but nobody within a handshake's time. */
static bool host_has_room(struct members *members, const struct address *host)
{
    size_t count = 0, oldest = members->arrival_count;
    for (size_t i = 0; i < members->arrival_count; i++) {
        const struct arrival *arrival = &members->arrivals[i];
        if (arrival->control.authenticated || !address_same(&arrival->host, host))
            continue;
        count++;
        if (oldest == members->arrival_count || arrival->begun_ns < members->arrivals[oldest].begun_ns)
            oldest = i;
    }
    if (count < members->count + ROOM_FOR_STRANGERS / 4)
        return true;
    if (clock_now_ns() - members->arrivals[oldest].begun_ns < NS_PER_S)
        return false;
    refused(members, host, "it said too little, and others wait");
    arrival_leave(members, oldest, true);
    return true;
}

void members_accept(struct members *members)
{
    struct address host = {.length = sizeof host.storage};
    int descriptor;
    while ((descriptor = accept4(members->listener, (struct sockaddr *)&host.storage, &host.length, SOCK_CLOEXEC)) >=
           0) {
        if (!host_has_room(members, &host) || members->arrival_count == members->arrival_max) {
            members->turned_away_count++;
            close(descriptor);
            continue;
        }
        struct arrival *arrival = &members->arrivals[members->arrival_count++];
        *arrival = (struct arrival){.host = host, .begun_ns = clock_now_ns()};
        control_begin(&arrival->control, descriptor, true);
        host.length = sizeof host.storage;
    }
}

static bool member_here(struct members *members, struct control *control, const struct received *message,
                        const char *build_id, struct failure *failure)
{
    const char *node = received_get(message, "node"), *address = received_get(message, "address"),
               *build = received_get(message, "build_id");
    size_t index = 0;
    while (node && index < members->count && strcmp(members->list[index].node, node) != 0)
        index++;
    if (!node || !address || index == members->count)
        return fail(failure, EXIT_PEER, "%.100s is not of this tournament", node ? node : "nobody");
    struct member *member = &members->list[index];
    if (member->here || member->reason[0])
        return fail(failure, EXIT_PEER, "%.100s is here already", node);
    if (!build || strcmp(build, build_id) != 0)
        fprintf(stderr, "warning: %s: its build is %.64s, the conductor's %s\n", node, build ? build : "?", build_id);
    member->control = *control;
    member->here = true;
    member->port = (unsigned)received_unsigned(message, "port");
    snprintf(member->address, sizeof member->address, "%s", address);
    members->here_count++;
    facts_write(members->facts_folder, node, received_get(message, "facts"));
    return true;
}

/* One message further. False: it goes, and failure says why; *here: it has become a member. */
static bool arrival_message(struct members *members, struct arrival *arrival, const struct received *message,
                            const char *build_id, bool *here, struct failure *failure)
{
    const char *expected = arrival->control.authenticated ? "here" : arrival->challenged ? "proof" : "hello";
    if (strcmp(received_type(message), expected) != 0)
        return fail(failure, EXIT_PEER, "control channel: expected %s, found %s", expected, received_type(message));
    if (arrival->control.authenticated)
        return *here = member_here(members, &arrival->control, message, build_id, failure);
    if (arrival->challenged)
        return control_proven(&arrival->control, members->secret, &arrival->nonces, message, failure);
    arrival->challenged = true; /* the answer is small: it fits the socket, or the peer does not read */
    return control_challenge(&arrival->control, members->secret, &arrival->nonces, message, clock_now_ns(), failure);
}

void members_arrival(struct members *members, size_t index, const char *build_id)
{
    struct arrival *arrival = &members->arrivals[index];
    struct received message;
    struct failure failure = {0};
    bool here = false, ok = true;
    while (ok && !here && control_poll(&arrival->control, &message, &failure)) {
        ok = arrival_message(members, arrival, &message, build_id, &here, &failure);
        received_free(&message);
    }
    if (failure.failed)
        refused(members, &arrival->host, failure.message);
    if (failure.failed || here)
        arrival_leave(members, index, failure.failed);
}

void members_late(struct members *members)
{
    for (size_t i = members->arrival_count; i > 0; i--)
        if (clock_now_ns() - members->arrivals[i - 1].begun_ns > answer_ns) {
            refused(members, &members->arrivals[i - 1].host, "timed out: no message of the peer");
            arrival_leave(members, i - 1, true);
        }
}

void members_close(struct members *members, double waited_s)
{
    while (members->arrival_count)
        arrival_leave(members, 0, true);
    if (members->refused_count > REFUSALS_SAID_MAX || members->turned_away_count)
        fprintf(stderr, "warning: %u connections were refused, %u turned away while there was no room\n",
                members->refused_count, members->turned_away_count);
    close(members->listener);
    members->listener = -1;
    for (size_t i = 0; i < members->count; i++)
        if (!members->list[i].here)
            member_lost(members, i, "its agent did not come within %g s", waited_s);
}

void members_end(struct members *members)
{
    struct text out = {0};
    message_begin(&out, "end");
    for (size_t i = 0; i < members->count; i++) {
        member_send(members, i, &out);
        if (members->list[i].control.descriptor >= 0)
            close(members->list[i].control.descriptor);
    }
    text_free(&out);
    free(members->list);
    free(members->arrivals);
}
