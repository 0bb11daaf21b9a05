/* Ways to send and to receive that the kernels do not have, beside those that they have, for bench/kernels/ways.py:
 *
 *   ways give send|rings|in_place|segments|segments_in_place tcp|udp BYTES ADDRESS PORT SECONDS
 *   ways take read|map READ_BYTES touch|leave PORT
 *
 * give sends for so long and says: bytes, CPU time in ns, calls that the kernel copied all the same. take receives one
 * connection (read, map) until its end and says: bytes, CPU time in ns, bytes that came as pages of the kernel.
 * rings: io_uring with BATCH sends a call. in_place: MSG_ZEROCOPY. segments: UDP_SEGMENT of SEGMENT_BYTES.
 * map: TCP_ZEROCOPY_RECEIVE. touch: reads a word of each cache line of what came. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/io_uring.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 32, LOOKS_EVERY = 16, SEGMENT_BYTES = 1472, ROOM_BYTES = 1 << 20, LINE_BYTES = 64 };

static uint64_t sent_bytes, call_count, open_count, copied_count;
static int descriptor;
static char *memory;

static void need(bool fine, const char *what)
{
    if (fine)
        return;
    perror(what);
    exit(1);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double cpu_ns(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return 1e9 * (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e3 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* What the kernel says of sends without a copy. */
static void look(void)
{
    for (;;) {
        _Alignas(struct cmsghdr) char control[256];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(descriptor, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            return;
        for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
            struct sock_extended_err about;
            memcpy(&about, CMSG_DATA(part), sizeof about);
            if (about.ee_origin != SO_EE_ORIGIN_ZEROCOPY)
                continue;
            uint64_t count = (uint64_t)(about.ee_data - about.ee_info) + 1;
            open_count -= count;
            copied_count += about.ee_code & SO_EE_CODE_ZEROCOPY_COPIED ? count : 0;
        }
    }
}

static void give_one(size_t bytes, bool in_place)
{
    ssize_t sent = send(descriptor, memory, bytes, MSG_NOSIGNAL | (in_place ? MSG_ZEROCOPY : 0));
    if (sent > 0) {
        sent_bytes += (uint64_t)sent;
        call_count++;
        open_count += in_place;
    }
    if (!in_place)
        return;
    if (sent < 0 && errno == ENOBUFS) {
        struct pollfd poller = {.fd = descriptor};
        poll(&poller, 1, 1);
    }
    if (sent < 0 || call_count % LOOKS_EVERY == 0)
        look();
}

static struct {
    int descriptor;
    unsigned *sent_tail, *sent_mask, *sent_list, *done_head, *done_tail, *done_mask;
    struct io_uring_sqe *sends;
    struct io_uring_cqe *dones;
} rings;

static void rings_open(void)
{
    struct io_uring_params about = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    const int protect = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    rings.descriptor = (int)syscall(__NR_io_uring_setup, 2 * BATCH, &about);
    need(rings.descriptor >= 0, "io_uring_setup");
    char *sends = mmap(NULL, about.sq_off.array + about.sq_entries * sizeof(unsigned), protect, flags, rings.descriptor,
                       IORING_OFF_SQ_RING);
    char *dones = mmap(NULL, about.cq_off.cqes + about.cq_entries * sizeof(struct io_uring_cqe), protect, flags,
                       rings.descriptor, IORING_OFF_CQ_RING);
    rings.sends = mmap(NULL, about.sq_entries * sizeof(struct io_uring_sqe), protect, flags, rings.descriptor, IORING_OFF_SQES);
    need(sends != MAP_FAILED && dones != MAP_FAILED && rings.sends != MAP_FAILED, "mmap of the rings");
    rings.sent_tail = (unsigned *)(void *)(sends + about.sq_off.tail);
    rings.sent_mask = (unsigned *)(void *)(sends + about.sq_off.ring_mask);
    rings.sent_list = (unsigned *)(void *)(sends + about.sq_off.array);
    rings.done_head = (unsigned *)(void *)(dones + about.cq_off.head);
    rings.done_tail = (unsigned *)(void *)(dones + about.cq_off.tail);
    rings.done_mask = (unsigned *)(void *)(dones + about.cq_off.ring_mask);
    rings.dones = (struct io_uring_cqe *)(void *)(dones + about.cq_off.cqes);
}

/* A chain: of a connection, one send follows the other. */
static void give_batch(size_t bytes)
{
    unsigned tail = *rings.sent_tail, waiting = BATCH, unsent = BATCH;
    for (unsigned i = 0; i < BATCH; i++, tail++) {
        unsigned at = tail & *rings.sent_mask;
        rings.sends[at] = (struct io_uring_sqe){.opcode = IORING_OP_SEND,
                                                .fd = descriptor,
                                                .addr = (uint64_t)(uintptr_t)memory,
                                                .len = (unsigned)bytes,
                                                .msg_flags = MSG_NOSIGNAL | MSG_WAITALL,
                                                .flags = i + 1 < BATCH ? IOSQE_IO_LINK : 0};
        rings.sent_list[at] = at;
    }
    __atomic_store_n(rings.sent_tail, tail, __ATOMIC_RELEASE);
    while (waiting) {
        long took = syscall(__NR_io_uring_enter, rings.descriptor, unsent, waiting, IORING_ENTER_GETEVENTS, NULL, 0);
        need(took >= 0 || errno == EINTR, "io_uring_enter");
        unsent -= took > 0 ? (unsigned)took : 0;
        unsigned head = *rings.done_head;
        for (; head != __atomic_load_n(rings.done_tail, __ATOMIC_ACQUIRE); head++, waiting--) {
            int sent = rings.dones[head & *rings.done_mask].res;
            sent_bytes += sent > 0 ? (uint64_t)sent : 0;
            call_count += sent > 0;
        }
        __atomic_store_n(rings.done_head, head, __ATOMIC_RELEASE);
    }
}

static int give(char **words)
{
    const char *way = words[0];
    bool tcp = !strcmp(words[1], "tcp"), in_place = strstr(way, "in_place"), by_rings = !strcmp(way, "rings");
    size_t bytes = strtoul(words[2], NULL, 10);
    int on = 1, segment = SEGMENT_BYTES;
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[4]))};
    need(inet_pton(AF_INET, words[3], &peer.sin_addr) == 1, "address");
    descriptor = socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    need(!connect(descriptor, (struct sockaddr *)&peer, sizeof peer), "connect");
    if (in_place)
        need(!setsockopt(descriptor, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), "SO_ZEROCOPY");
    if (!strncmp(way, "segments", 8))
        need(!setsockopt(descriptor, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment), "UDP_SEGMENT");
    if (by_rings)
        rings_open();
    double end_s = now_s() + atof(words[5]), before_ns = cpu_ns();
    while (now_s() < end_s) {
        if (by_rings)
            give_batch(bytes);
        for (int i = 0; i < BATCH && !by_rings; i++)
            give_one(bytes, in_place);
    }
    double used_ns = cpu_ns() - before_ns;
    for (int i = 0; i < 100 && open_count; i++) {
        struct pollfd poller = {.fd = descriptor};
        poll(&poller, 1, 10);
        look();
    }
    printf("%llu %.0f %llu\n", (unsigned long long)sent_bytes, used_ns, (unsigned long long)(call_count ? copied_count : 0));
    return 0;
}

static volatile uint64_t seen;

static void touch(const char *from, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i + sizeof sum <= bytes; i += LINE_BYTES) {
        uint64_t word;
        memcpy(&word, from + i, sizeof word);
        sum += word;
    }
    seen += sum;
}

/* What the kernel does not give as pages is read. */
static ssize_t take_mapped(char *pages, size_t room, bool touched, uint64_t *mapped_bytes)
{
    struct tcp_zerocopy_receive about = {.address = (uint64_t)(uintptr_t)pages, .length = (uint32_t)room};
    socklen_t length = sizeof about;
    struct pollfd poller = {.fd = descriptor, .events = POLLIN};
    poll(&poller, 1, -1);
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &about, &length)) {
        need(errno == EIO, "TCP_ZEROCOPY_RECEIVE"); /* the end of the stream */
        return 0;
    }
    if (about.length && touched)
        touch(pages, about.length);
    *mapped_bytes += about.length;
    size_t skip = about.recv_skip_hint < ROOM_BYTES ? about.recv_skip_hint : ROOM_BYTES;
    if (!skip && about.length)
        return (ssize_t)about.length;
    ssize_t got = recv(descriptor, memory, skip ? skip : ROOM_BYTES, 0);
    if (got > 0 && touched)
        touch(memory, (size_t)got);
    return got < 0 ? got : got + (ssize_t)about.length;
}

static int take(char **words)
{
    bool mapped = !strcmp(words[0], "map"), touched = !strcmp(words[2], "touch");
    size_t room = strtoul(words[1], NULL, 10);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[3]))};
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    uint64_t bytes = 0, mapped_bytes = 0;
    need(!setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
    need(!bind(listener, (struct sockaddr *)&here, sizeof here) && !listen(listener, 1), "listen");
    descriptor = accept(listener, NULL, NULL);
    need(descriptor >= 0, "accept");
    char *pages = mapped ? mmap(NULL, room, PROT_READ, MAP_SHARED, descriptor, 0) : NULL;
    need(pages != MAP_FAILED, "mmap of the connection");
    double before_ns = cpu_ns();
    for (;;) {
        ssize_t got = mapped ? take_mapped(pages, room, touched, &mapped_bytes) : recv(descriptor, memory, room, 0);
        if (got <= 0)
            break;
        bytes += (uint64_t)got;
        if (!mapped && touched)
            touch(memory, (size_t)got);
    }
    printf("%llu %.0f %llu\n", (unsigned long long)bytes, cpu_ns() - before_ns, (unsigned long long)mapped_bytes);
    return 0;
}

int main(int count, char **words)
{
    memory = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    need(memory != MAP_FAILED, "mmap");
    memset(memory, 5, ROOM_BYTES);
    if (count == 8 && !strcmp(words[1], "give"))
        return give(words + 2);
    if (count == 6 && !strcmp(words[1], "take"))
        return take(words + 2);
    fprintf(stderr, "ways give WAY tcp|udp BYTES ADDRESS PORT SECONDS, ways take WAY READ_BYTES touch|leave PORT\n");
    return 2;
}
