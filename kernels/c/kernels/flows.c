/* See flows.h. */
#include "kernels/flows.h"

#include "base/signals.h"

#include <math.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

const char *const flows_waits[] = {"block", "epoll", "spin", NULL};
const char *const flows_directions[] = {"client_to_server", "server_to_client", "both", NULL};

const char *const flows_ways[] = {"client_to_server", "server_to_client", NULL};

static const uint64_t wait_limit_ns = 50000000; /* between looks at the control channel */
static const uint64_t spin_limit_ns = 200000;   /* the same, where a look costs more than what is waited for */

static struct flow *turn_out(struct flows *flows, bool any)
{
    for (size_t i = 0; i < flows->count; i++) {
        struct flow *flow = &flows->list[(flows->turn_out + i) % flows->count];
        if (flow->held || (!any && !flow->writable))
            continue;
        flows->turn_out = (flow->index + 1) % flows->count;
        return flow;
    }
    return NULL;
}

static struct flow *turn_in(struct flows *flows, bool any)
{
    for (size_t i = 0; i < flows->count; i++) {
        struct flow *flow = &flows->list[(flows->turn_in + i) % flows->count];
        if (!any && !flow->readable)
            continue;
        flows->turn_in = (flow->index + 1) % flows->count;
        return flow;
    }
    return NULL;
}

static struct timespec rest_of(uint64_t rest_ns)
{
    return (struct timespec){.tv_sec = (time_t)(rest_ns / NS_PER_S), .tv_nsec = (long)(rest_ns % NS_PER_S)};
}

static void wait_poll(struct run *run, struct flows *flows, bool out, bool in, uint64_t rest_ns)
{
    struct pollfd pollers[FLOWS_MAX];
    struct timespec rest = rest_of(rest_ns);
    for (size_t i = 0; i < flows->count; i++)
        pollers[i] =
            (struct pollfd){.fd = flows->list[i].descriptor,
                            .events = (short)((out && !flows->list[i].held ? POLLOUT : 0) | (in ? POLLIN : 0))};
    run->call_count++;
    if (ppoll(pollers, flows->count, &rest, NULL) <= 0)
        return;
    for (size_t i = 0; i < flows->count; i++) {
        flows->list[i].writable = flows->list[i].writable || (pollers[i].revents & ~POLLIN);
        flows->list[i].readable = flows->list[i].readable || (pollers[i].revents & ~POLLOUT);
    }
}

/* Edges: a flow is told of once, and stays ready until a call says EAGAIN. */
static void wait_epoll(struct run *run, struct flows *flows, uint64_t rest_ns)
{
    struct epoll_event events[FLOWS_MAX];
    struct pollfd poller = {.fd = flows->epoll, .events = POLLIN};
    struct timespec rest = rest_of(rest_ns);
    run->call_count++;
    if (rest_ns % 1000000) { /* epoll_wait() counts in ms */
        run->call_count++;
        if (ppoll(&poller, 1, &rest, NULL) <= 0)
            return;
        rest_ns = 0;
    }
    int count = epoll_wait(flows->epoll, events, FLOWS_MAX, (int)(rest_ns / 1000000));
    for (int i = 0; i < count; i++) {
        struct flow *flow = &flows->list[events[i].data.u32];
        flow->writable = flow->writable || (events[i].events & ~(uint32_t)EPOLLIN);
        flow->readable = flow->readable || (events[i].events & ~(uint32_t)EPOLLOUT);
    }
}

/* Until a flow can be served, the next thing is due, or the control channel wants a look. */
static void wait_for_flows(struct run *run, struct flows *flows, bool in, uint64_t due_ns)
{
    run->now_ns = clock_now_ns();
    uint64_t until_ns = run->now_ns + wait_limit_ns;
    bool out = due_ns <= run->now_ns, timed = !out && due_ns < until_ns;
    if (timed)
        until_ns = due_ns;
    if (timed && flows->spin_to_due && !in) {
        uint64_t limit_ns = run->now_ns + spin_limit_ns;
        while (run->now_ns < until_ns && run->now_ns < limit_ns)
            run->now_ns = clock_now_ns();
        return;
    }
    if (!in && !out) {
        run->call_count++;
        clock_sleep_until(until_ns);
    } else if (flows->wait == FLOWS_EPOLL) {
        wait_epoll(run, flows, until_ns - run->now_ns);
    } else {
        wait_poll(run, flows, out, in, until_ns - run->now_ns);
    }
    run->now_ns = clock_now_ns();
}

/* The flows' calls may block where one flow does one thing: nothing else could be done meanwhile. */
static bool may_block(const struct flows *flows, bool other)
{
    return flows->wait == FLOWS_BLOCK && flows->count == 1 && !other;
}

static enum step better_of(enum step put, enum step got)
{
    if (put == STEP_FAILED || got == STEP_FAILED)
        return STEP_FAILED;
    if (put == STEP_OPERATION || got == STEP_OPERATION)
        return STEP_OPERATION;
    if (put == STEP_MOVED || got == STEP_MOVED)
        return STEP_MOVED;
    return put == STEP_BUSY || got == STEP_BUSY ? STEP_BUSY : STEP_IDLE;
}

/* True when the end is blocked in its own call already. */
static enum step flows_once(struct run *run, struct flows *flows, const struct flow_events *events, uint64_t *due_ns,
                            bool *blocked)
{
    enum step put = STEP_IDLE, got = STEP_IDLE;
    bool receives = events->get != NULL, spins = flows->wait == FLOWS_SPIN;
    *due_ns = events->due(run);
    if (*due_ns && *due_ns != FLOWS_NEVER && *due_ns > run->now_ns)
        run->now_ns = clock_now_ns();
    if (*due_ns <= run->now_ns) {
        bool block = may_block(flows, receives);
        struct flow *flow = turn_out(flows, block || spins);
        put = flow ? events->put(run, flow, block ? 0 : MSG_DONTWAIT) : STEP_IDLE;
        *blocked = block;
        if (receives && put != STEP_FAILED)
            *due_ns = events->due(run);
    }
    if (receives && put != STEP_FAILED) {
        bool block = may_block(flows, *due_ns != FLOWS_NEVER);
        struct flow *flow = turn_in(flows, block || spins);
        got = flow ? events->get(run, flow, block ? 0 : MSG_DONTWAIT) : STEP_IDLE;
        *blocked = *blocked || block;
    }
    return better_of(put, got);
}

enum step flows_step(struct run *run, struct flows *flows, const struct flow_events *events)
{
    uint64_t spin_until_ns = 0;
    for (;;) {
        uint64_t due_ns = 0;
        bool blocked = false;
        enum step step = flows_once(run, flows, events, &due_ns, &blocked);
        if (step != STEP_IDLE && step != STEP_BUSY)
            return step;
        if (blocked)
            return step;
        if (flows->wait != FLOWS_SPIN) {
            wait_for_flows(run, flows, events->get != NULL, due_ns);
            return step;
        }
        run->now_ns = clock_now_ns();
        if (!spin_until_ns)
            spin_until_ns = run->now_ns + spin_limit_ns;
        if (run->now_ns >= spin_until_ns || signals_control() || signals_stop())
            return step;
    }
}

void flows_begin(struct flows *flows)
{
    flows->turn_out = flows->turn_in = 0;
    for (size_t i = 0; i < flows->count; i++) {
        struct flow *flow = &flows->list[i];
        *flow = (struct flow){.descriptor = flow->descriptor, .index = i, .readable = true, .writable = true};
    }
}

bool flows_prepare(struct run *run, struct flows *flows, enum flows_wait wait)
{
    flows->wait = wait;
    if (wait != FLOWS_EPOLL)
        return true;
    flows->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; flows->epoll >= 0 && i < flows->count; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = (uint32_t)i};
        if (epoll_ctl(flows->epoll, EPOLL_CTL_ADD, flows->list[i].descriptor, &event))
            return fail_system(&run->failure, "epoll of a flow");
    }
    return flows->epoll >= 0 || fail_system(&run->failure, "epoll");
}

void flows_part(const struct flows *all, struct flows *part, size_t index, size_t count)
{
    part->count = 0;
    part->spin_to_due = all->spin_to_due;
    for (size_t i = index; i < all->count; i += count)
        part->list[part->count++].descriptor = all->list[i].descriptor;
}

void flows_forget(struct flows *part)
{
    if (part->epoll > 0)
        close(part->epoll);
    part->epoll = 0;
    part->count = 0;
}

void flows_close(struct flows *flows)
{
    for (size_t i = 0; i < flows->count; i++)
        if (flows->list[i].descriptor > 0)
            close(flows->list[i].descriptor);
    if (flows->epoll > 0)
        close(flows->epoll);
    flows->count = 0;
}

double flows_fairness(const struct flows *flows)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < flows->count; i++) {
        double bytes = (double)flows->list[i].bytes;
        sum += bytes;
        squares += bytes * bytes;
    }
    return squares > 0 ? sum * sum / ((double)flows->count * squares) : (double)NAN;
}
