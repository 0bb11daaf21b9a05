/* See flows.h. */
#include "kernels/flows.h"

#include <math.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct flow *ready_in_turn(struct flows *flows)
{
    for (size_t i = 0; i < flows->count; i++) {
        struct flow *flow = &flows->list[(flows->turn + i) % flows->count];
        if (!flow->ready)
            continue;
        flows->turn = (flows->turn + i + 1) % flows->count;
        return flow;
    }
    return NULL;
}

struct flow *flows_next(struct flows *flows, short events, int wait_ms)
{
    struct pollfd pollers[FLOWS_MAX];
    if (flows->count == 1)
        return &flows->list[0];
    struct flow *flow = ready_in_turn(flows);
    if (flow)
        return flow;
    for (size_t i = 0; i < flows->count; i++)
        pollers[i] = (struct pollfd){.fd = flows->list[i].descriptor, .events = events};
    if (poll(pollers, flows->count, wait_ms) <= 0)
        return NULL;
    for (size_t i = 0; i < flows->count; i++)
        flows->list[i].ready = pollers[i].revents != 0;
    return ready_in_turn(flows);
}

int flows_flags(const struct flows *flows)
{
    return flows->count > 1 ? MSG_DONTWAIT : 0;
}

void flows_begin(struct flows *flows)
{
    flows->turn = 0;
    for (size_t i = 0; i < flows->count; i++) {
        flows->list[i].offset = 0;
        flows->list[i].bytes = 0;
        flows->list[i].ready = false;
    }
}

void flows_close(struct flows *flows)
{
    for (size_t i = 0; i < flows->count; i++)
        if (flows->list[i].descriptor > 0)
            close(flows->list[i].descriptor);
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
