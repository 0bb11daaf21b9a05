/* floor: the bare loops that a network kernel is compared with: no options, no evidence, no control channel.
 *
 *     floor sink|echo tcp|udp BYTES FLOWS PORT            server; ends with its one client, prints `bits_per_second N`
 *     floor send tcp|udp BYTES FLOWS PORT HOST SECONDS    as fast as the socket takes it
 *     floor ask  tcp|udp BYTES FLOWS PORT HOST SECONDS    one message there and back; prints `mean p50 p99` in ns
 *
 * The rate is the receiver's, from its first read to its last, as with every tool that counts at the receiver. The
 * first 100 ms of `send` and `ask` are warm-up: not counted by `ask`, and too early for `sink` by the client's mark. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FLOWS_MAX = 64, SAMPLES_MAX = 4000000, BUFFER_BYTES = 4194304, PAGE_BYTES = 4096 };
static const uint64_t warm_ns = 100000000;
static const double silence_s = 0.5; /* after which a UDP sink has seen the last datagram */

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static struct sockaddr_in place_of(const char *host, const char *port)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (host && inet_pton(AF_INET, host, &place.sin_addr) != 1)
        die(host);
    return place;
}

static void tune(int descriptor, bool tcp)
{
    int one = 1, buffer = BUFFER_BYTES;
    if (tcp)
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    else
        setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
}

static int open_server(bool tcp, const char *port)
{
    struct sockaddr_in place = place_of(NULL, port);
    int one = 1, descriptor = socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    tune(descriptor, tcp);
    if (bind(descriptor, (struct sockaddr *)&place, sizeof place) || (tcp && listen(descriptor, FLOWS_MAX)))
        die("bind");
    puts("ready");
    fflush(stdout);
    return descriptor;
}

static void open_flows(bool tcp, size_t count, const char *port, const char *host, struct pollfd *flows)
{
    struct sockaddr_in place = place_of(host, port);
    int server = host ? -1 : open_server(tcp, port);
    for (size_t i = 0; i < count; i++) {
        flows[i].fd = host ? socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0) : tcp ? accept(server, NULL, NULL) : server;
        if (host && connect(flows[i].fd, (struct sockaddr *)&place, sizeof place))
            die("connect");
        tune(flows[i].fd, tcp);
    }
}

/* The next flow that poll() calls ready; with one flow there is nothing to wait for. */
static int next(struct pollfd *flows, size_t count, short events, size_t *turn)
{
    if (count == 1)
        return flows[0].fd;
    for (;;) {
        for (; *turn < count; (*turn)++)
            if (flows[*turn].revents)
                return flows[*turn].fd;
        for (size_t i = 0; i < count; i++)
            flows[i].events = events;
        if (poll(flows, count, -1) < 0)
            die("poll");
        *turn = 0;
    }
}

static void leave(struct pollfd *flows, size_t count, size_t turn)
{
    if (count > 1)
        flows[turn].revents = 0;
}

static void sink(bool tcp, char *buffer, size_t bytes, struct pollfd *flows, size_t count)
{
    struct timeval wait = {.tv_usec = (suseconds_t)(silence_s * 1e6)};
    uint64_t first_ns = 0, last_ns = 0, warm_until_ns = 0, received = 0;
    size_t turn = count, left = count;
    while (left) {
        int descriptor = next(flows, count, POLLIN, &turn);
        ssize_t got = recv(descriptor, buffer, bytes, count > 1 ? MSG_DONTWAIT : 0);
        if (got < 0 && errno == EAGAIN && count > 1) {
            leave(flows, count, turn);
            continue;
        }
        if (got <= 0) {
            if (count > 1)
                flows[turn].fd = -1;
            leave(flows, count, turn);
            left--;
            continue;
        }
        last_ns = now_ns();
        if (!warm_until_ns) {
            warm_until_ns = last_ns + warm_ns;
            if (!tcp && setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait))
                die("SO_RCVTIMEO");
        }
        if (last_ns < warm_until_ns)
            continue;
        if (first_ns)
            received += (uint64_t)got;
        else
            first_ns = last_ns;
    }
    printf("bits_per_second %.0f\n", (double)received * 8e9 / (double)(last_ns - first_ns));
}

static void echo(char *buffer, size_t bytes, int descriptor)
{
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    ssize_t got;
    while ((got = recvfrom(descriptor, buffer, bytes, 0, (struct sockaddr *)&from, &length)) > 0 &&
           !(got == 1 && bytes > 1)) /* one byte is the end of UDP */
        if (sendto(descriptor, buffer, (size_t)got, 0, length ? (struct sockaddr *)&from : NULL, length) < 0)
            break;
}

static void send_all(bool tcp, char *buffer, size_t bytes, struct pollfd *flows, size_t count, double seconds)
{
    uint64_t end_ns = now_ns() + warm_ns + (uint64_t)(seconds * 1e9);
    size_t turn = count;
    while (now_ns() < end_ns) {
        int descriptor = next(flows, count, POLLOUT, &turn);
        if (send(descriptor, buffer, bytes, MSG_NOSIGNAL | (count > 1 ? MSG_DONTWAIT : 0)) < 0) {
            if (errno != EAGAIN && tcp)
                die("send");
            leave(flows, count, turn);
        }
    }
}

static int by_size(const void *a, const void *b)
{
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
    return (first > second) - (first < second);
}

static void ask(char *buffer, size_t bytes, int descriptor, double seconds)
{
    uint64_t *samples = malloc(SAMPLES_MAX * sizeof *samples), start_ns = now_ns(), sent_ns = start_ns;
    uint64_t from_ns = start_ns + warm_ns, end_ns = from_ns + (uint64_t)(seconds * 1e9);
    size_t count = 0;
    double sum_ns = 0;
    while (samples && sent_ns < end_ns && count < SAMPLES_MAX) {
        size_t back = 0;
        if (send(descriptor, buffer, bytes, MSG_NOSIGNAL) < 0)
            die("send");
        while (back < bytes) {
            ssize_t got = recv(descriptor, buffer, bytes - back, 0);
            if (got <= 0)
                die("recv");
            back += (size_t)got;
        }
        uint64_t back_ns = now_ns();
        if (sent_ns >= from_ns) {
            samples[count++] = back_ns - sent_ns;
            sum_ns += (double)(back_ns - sent_ns);
        }
        sent_ns = back_ns;
    }
    if (!count)
        die("no round trip");
    qsort(samples, count, sizeof *samples, by_size);
    printf("%.1f %llu %llu\n", sum_ns / (double)count, (unsigned long long)samples[count / 2],
           (unsigned long long)samples[count - 1 - count / 100]);
    send(descriptor, buffer, 1, MSG_NOSIGNAL);
    free(samples);
}

int main(int count, char **words)
{
    struct pollfd flows[FLOWS_MAX] = {0};
    if (count != 6 && count != 8) {
        fprintf(stderr, "usage: floor sink|echo|send|ask tcp|udp BYTES FLOWS PORT [HOST SECONDS]\n");
        return 2;
    }
    bool tcp = !strcmp(words[2], "tcp");
    size_t bytes = (size_t)atol(words[3]), flow_count = (size_t)atol(words[4]);
    char *buffer = aligned_alloc(PAGE_BYTES, (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES); /* as the kernels' */
    if (!buffer || !flow_count || flow_count > FLOWS_MAX)
        die("arguments");
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = (char)(i * 2654435761U >> 13); /* no zero page */
    open_flows(tcp, flow_count, words[5], count == 8 ? words[6] : NULL, flows);
    if (!strcmp(words[1], "sink"))
        sink(tcp, buffer, bytes, flows, flow_count);
    else if (!strcmp(words[1], "echo"))
        echo(buffer, bytes, flows[0].fd);
    else if (!strcmp(words[1], "send"))
        send_all(tcp, buffer, bytes, flows, flow_count, atof(words[7]));
    else
        ask(buffer, bytes, flows[0].fd, atof(words[7]));
    free(buffer);
    return 0;
}
