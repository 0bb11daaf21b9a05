/* tcp_connect: connections, one after the other: how long connect() takes, and how many a second are served. */
#include "engine/round_trip.h"
#include "kernels/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int block_limit_ms = 20; /* between looks at the control channel */
enum { GUESTS_MAX = 64 };

struct tcp_connect_options {
    struct common_options common;
    double connect_timeout_s;
    struct socket_settings sockets;
};

static const struct option_row option_rows[] = {
    OPTION_ROWS_COMMON(struct tcp_connect_options),
    OPTION_NUMBER_ROW(struct tcp_connect_options, connect_timeout_s, 1, 0.001, 60,
                      "a connection that is not made and answered in this time has failed"),
    OPTION_ROWS_TCP(struct tcp_connect_options)};

static const struct option_relation relations[] = {RELATIONS_SOURCE, RELATION_MSS};

struct tcp_connect_metrics {
    struct common_metrics common;
    struct round_trip_metrics round_trip;
    double connection_rate_pps, connection_count, failed_count, stranger_count;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_ROUND_TRIP(struct tcp_connect_metrics),
    METRIC_ROW(struct tcp_connect_metrics, connection_rate_pps, BETTER_HIGHER,
               "connections per second, each made, proved by its token, answered with a byte and reset"),
    METRIC_ROW(struct tcp_connect_metrics, connection_count, BETTER_NONE, "connections that were answered"),
    METRIC_ROW(struct tcp_connect_metrics, failed_count, BETTER_LOWER,
               "connections that were refused, or not answered in connect_timeout_s"),
    METRIC_ROW(struct tcp_connect_metrics, stranger_count, BETTER_LOWER,
               "connections that others made to the test port, and that the server did not answer"),
    METRIC_ROWS_COMMON(struct tcp_connect_metrics),
    METRIC_ROWS_CALLS(struct tcp_connect_metrics),
};

struct tcp_connect {
    int listener, descriptor; /* client: the last connection, until the next one begins */
    struct address to;
    uint8_t token[CONTROL_TOKEN_BYTES];
    int guests[GUESTS_MAX]; /* server: connections whose token is not here yet, the oldest first */
    size_t guest_count;
    uint64_t answered_count, failed_count, stranger_count;
};

static bool tcp_connect_listen(struct run *run)
{
    struct tcp_connect *state = run->state;
    const struct tcp_connect_options *options = run->options;
    return sockets_tcp_listen(run, &options->sockets, &state->listener);
}

static bool tcp_connect_open(struct run *run)
{
    struct tcp_connect *state = run->state;
    control_token(&run->control, state->token);
    state->to = run->peer;
    address_set_port(&state->to, run->test_port);
    return !run->is_server || fcntl(state->listener, F_SETFL, O_NONBLOCK) == 0 ||
           fail_system(&run->failure, "O_NONBLOCK");
}

static void tcp_connect_begin(struct run *run)
{
    struct tcp_connect *state = run->state;
    state->answered_count = state->failed_count = state->stranger_count = 0;
}

/* Ends with a reset: neither end keeps the pair of ports in TIME_WAIT, of which a node has some 28,000. */
static void tcp_connect_drop(int *descriptor)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    if (*descriptor <= 0)
        return;
    setsockopt(*descriptor, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(*descriptor);
    *descriptor = -1;
}

/* A socket like any other of the session, bound to the address that the client uses. */
static bool tcp_connect_socket(struct run *run)
{
    struct tcp_connect *state = run->state;
    const struct tcp_connect_options *options = run->options;
    unsigned port = 0; /* each connection may have the first one: the one before was reset */
    state->descriptor = socket_tcp_new(run, &state->to, &options->sockets);
    return state->descriptor >= 0 && sockets_timeout(run, state->descriptor, options->connect_timeout_s) &&
           socket_options_apply(run, state->descriptor, &options->sockets, SOCK_STREAM, SOCKET_BEFORE) &&
           sockets_bind_source(run, &options->sockets, state->descriptor, &port);
}

static enum step tcp_connect_failed(struct run *run)
{
    struct tcp_connect *state = run->state;
    int error = errno;
    run->now_ns = clock_now_ns();
    tcp_connect_drop(&state->descriptor);
    if (error == EINTR) /* a signal: this one is no failure */
        return STEP_IDLE;
    state->failed_count++;
    run->operation_count++;
    return STEP_IDLE;
}

static enum step tcp_connect_ask(struct run *run)
{
    struct tcp_connect *state = run->state;
    uint8_t answer;
    tcp_connect_drop(&state->descriptor);
    if (!tcp_connect_socket(run))
        return STEP_FAILED;
    uint64_t start_ns = clock_now_ns();
    run->call_count += 3;
    if (connect(state->descriptor, (const struct sockaddr *)&state->to.storage, state->to.length))
        return tcp_connect_failed(run);
    uint64_t made_ns = clock_now_ns();
    if (send(state->descriptor, state->token, sizeof state->token, MSG_NOSIGNAL) != (ssize_t)sizeof state->token ||
        recv(state->descriptor, &answer, sizeof answer, 0) != (ssize_t)sizeof answer)
        return tcp_connect_failed(run);
    run->now_ns = clock_now_ns();
    run_round_trip(run, made_ns - start_ns);
    run->sent_count++;
    state->answered_count++;
    return STEP_OPERATION;
}

/* Answers it when its token is right; it leaves, unless the token is still to come. */
static bool guest_served(struct run *run, int descriptor, bool *stays)
{
    struct tcp_connect *state = run->state;
    uint8_t token[CONTROL_TOKEN_BYTES], difference = 0;
    ssize_t got = recv(descriptor, token, sizeof token, MSG_DONTWAIT | MSG_PEEK);
    run->call_count++;
    *stays = got < 0 ? errno == EAGAIN || errno == EINTR : got > 0 && got < (ssize_t)sizeof token;
    if (*stays)
        return false;
    for (size_t i = 0; i < sizeof token; i++)
        difference |= got == (ssize_t)sizeof token ? token[i] ^ state->token[i] : 1;
    bool ours = !difference && recv(descriptor, token, sizeof token, MSG_DONTWAIT) > 0 &&
                send(descriptor, token, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
    run->call_count += 2;
    state->stranger_count += difference != 0;
    state->answered_count += ours;
    close(descriptor); /* what it was sent is read before the client resets */
    return ours;
}

static void guest_remove(struct tcp_connect *state, size_t index)
{
    memmove(&state->guests[index], &state->guests[index + 1], (--state->guest_count - index) * sizeof state->guests[0]);
}

static bool guests_arrive(struct run *run)
{
    struct tcp_connect *state = run->state;
    int descriptor = accept4(state->listener, NULL, NULL, SOCK_CLOEXEC);
    bool stays = false;
    run->call_count++;
    if (descriptor < 0)
        return false;
    bool served = guest_served(run, descriptor, &stays);
    if (!stays)
        return served;
    if (state->guest_count == GUESTS_MAX) { /* the oldest has had the most time */
        close(state->guests[0]);
        guest_remove(state, 0);
        state->stranger_count++;
    }
    state->guests[state->guest_count++] = descriptor;
    return false;
}

static enum step tcp_connect_answer(struct run *run)
{
    struct tcp_connect *state = run->state;
    struct pollfd pollers[1 + GUESTS_MAX];
    bool served = false, stays = false;
    if (run->peer_stopped)
        return STEP_DONE;
    size_t count = state->guest_count;
    pollers[0] = (struct pollfd){.fd = state->listener, .events = POLLIN};
    for (size_t i = 0; i < count; i++)
        pollers[i + 1] = (struct pollfd){.fd = state->guests[i], .events = POLLIN};
    run->call_count++;
    int ready = poll(pollers, count + 1, block_limit_ms);
    for (size_t i = count; ready > 0 && i > 0; i--) {
        if (!pollers[i].revents)
            continue;
        served = guest_served(run, state->guests[i - 1], &stays) || served;
        if (!stays)
            guest_remove(state, i - 1);
    }
    if (ready > 0 && pollers[0].revents)
        served = guests_arrive(run) || served;
    run->now_ns = clock_now_ns();
    return served ? STEP_OPERATION : STEP_IDLE;
}

static enum step tcp_connect_step(struct run *run)
{
    return run->is_active ? tcp_connect_ask(run) : tcp_connect_answer(run);
}

static void tcp_connect_report(struct run *run)
{
    const struct tcp_connect *state = run->state;
    const struct tcp_connect_options *options = run->options;
    struct tcp_connect_metrics *metrics = run->metrics;
    int descriptor = run->is_server ? state->listener : state->descriptor;
    if (descriptor > 0)
        socket_options_granted(run, descriptor, &options->sockets, SOCK_STREAM);
    if (run->is_server) {
        metrics->stranger_count = (double)state->stranger_count;
        return;
    }
    round_trip_fill(run->histogram, &metrics->round_trip);
    metrics->connection_count = (double)state->answered_count;
    metrics->failed_count = (double)state->failed_count;
    metrics->connection_rate_pps =
        (double)state->answered_count * 1e9 / (double)(run->phase_end_ns - run->phase_start_ns);
    if (!state->answered_count)
        run_invalid(run, "none of %llu connections was answered", (unsigned long long)state->failed_count);
}

static void tcp_connect_close(struct run *run)
{
    struct tcp_connect *state = run->state;
    tcp_connect_drop(&state->descriptor);
    while (state->guest_count)
        close(state->guests[--state->guest_count]);
    if (state->listener > 0)
        close(state->listener);
}

const struct kernel kernel_tcp_connect = {
    .name = "tcp_connect",
    .summary = "rate and time of TCP connections",
    .method =
        "The client makes one connection after the other. A sample (round_trip_*) is the time of connect(), from call "
        "to return: one round trip and the work of both kernels. Then it sends the session's token and waits for one "
        "byte, so that the server's accept() is part of the rate. Both ends leave by a reset, so that no pair of ports "
        "stays behind.",
    .options = OPTION_TABLE_RELATED(option_rows, struct tcp_connect_options, NULL, relations),
    .metrics = METRIC_TABLE(metric_rows, struct tcp_connect_metrics),
    .state_bytes = sizeof(struct tcp_connect),
    .round_trips = true,
    .listen = tcp_connect_listen,
    .open = tcp_connect_open,
    .begin = tcp_connect_begin,
    .step = tcp_connect_step,
    .report = tcp_connect_report,
    .close = tcp_connect_close,
};
