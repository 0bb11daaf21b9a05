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

void members_begin(struct members *members, const struct tournament *tournament)
{
    members->count = tournament->node_count;
    members->list = memory_new(members->count + 1, sizeof *members->list);
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

void members_accept(struct members *members)
{
    int descriptor;
    while ((descriptor = accept4(members->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        size_t most = sizeof members->arrivals / sizeof members->arrivals[0];
        if (members->arrival_count == most) { /* whoever has been silent for longest goes */
            close(members->arrivals[0]);
            memmove(members->arrivals, members->arrivals + 1, --members->arrival_count * sizeof members->arrivals[0]);
        }
        members->arrivals[members->arrival_count++] = descriptor;
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

void members_arrival(struct members *members, size_t index, const char *build_id)
{
    struct control control;
    struct received message;
    struct failure failure = {0};
    uint64_t deadline = clock_now_ns() + answer_ns;
    int descriptor = members->arrivals[index];
    members->arrivals[index] = members->arrivals[--members->arrival_count];
    control_begin(&control, descriptor, true);
    bool ok = control_authenticate(&control, members->secret, deadline, &failure) &&
              control_expect(&control, "here", &message, deadline, &failure);
    if (ok) {
        ok = member_here(members, &control, &message, build_id, &failure);
        received_free(&message);
    }
    if (ok)
        return;
    fprintf(stderr, "warning: a connection was refused: %s\n", failure.message);
    close(descriptor);
}

void members_close(struct members *members, double waited_s)
{
    for (size_t i = 0; i < members->arrival_count; i++)
        close(members->arrivals[i]);
    members->arrival_count = 0;
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
}
