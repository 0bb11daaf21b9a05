/* wire.c: a wide-area link between two network namespaces, in user space, for kernels without netem.
 *
 *     namespace A                                                        namespace B
 *       wan0 (tap) --read--> loss -> rate -> delay queue --write--> wan0 (tap)
 *       wan0 (tap) <-write-- delay queue <- rate <- loss <--read--- wan0 (tap)
 *
 * Each direction is a serial line. A frame leaves after the previous one, when its own bits were sent at the rate, and
 * arrives one delay later. A frame that would wait longer than BUFFER_NS for the line is dropped, as a router does.
 *
 * usage: wire SOCKET NETNS_A NETNS_B INTERFACE DELAY_NS RATE_BPS LOSS_PPB SEED
 *
 * SOCKET is a Unix stream socket that takes one line and answers with one:
 *     get                              -> {"delay_ns":...,"a_to_b":{...},"b_to_a":{...}}
 *     set DELAY_NS RATE_BPS LOSS_PPB   -> the same, with the new values in force
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    FRAME_BYTES_MAX = 65536,
    READS_PER_TURN = 64,  /* then it is the other direction's turn */
    QUEUE_FRAMES = 10000, /* what the tap holds while this process waits for a CPU */
    PRIORITY = 10,
    NICENESS = -15
};
#define QUEUE_BYTES (64u << 20) /* of address space; only used pages take memory */
#define BUFFER_NS UINT64_C(50000000)
#define LEAD_WEIGHT UINT64_C(16)
#define LEAD_MAX_NS UINT64_C(150000)
#define LONE_NS UINT64_C(500000)
#define NS_PER_S UINT64_C(1000000000)
#define PATIENCE_NS (60 * NS_PER_S) /* who asks may have lost its CPU */
#define PPB UINT64_C(1000000000)

struct line {
    uint64_t delay_ns;
    uint64_t rate_bps; /* 0: not limited */
    uint64_t loss_ppb;
};

/* A frame in the queue; its bytes follow. */
struct record {
    uint64_t due_ns;
    uint32_t length_bytes;
    uint32_t size_bytes; /* of the record with its frame, or of the gap before the wrap when length_bytes is 0 */
};

struct direction {
    const char *name;
    int from, to;
    unsigned char *queue;
    size_t head, tail, used; /* offsets and sum of the records between them */
    uint64_t line_free_ns;
    uint64_t given_ns; /* when the last frame was delivered */
    uint64_t random_state;
    uint64_t frame_count, byte_count, lost_count, overflow_count, late_max_ns;
};

static volatile sig_atomic_t ended;

static void die(const char *what)
{
    fprintf(stderr, "error: wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* xorshift64*: Vigna 2016, "An experimental exploration of Marsaglia's xorshift generators, scrambled". */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

static bool is_lost(struct direction *way, uint64_t loss_ppb)
{
    if (loss_ppb == 0)
        return false;
    return (next_random(&way->random_state) >> 11) % PPB < loss_ppb;
}

/* Room for a record of `size` bytes at the tail; NULL if the queue is full. */
static struct record *reserve(struct direction *way, size_t size)
{
    if (way->used == 0)
        way->head = way->tail = 0;
    size_t to_end = QUEUE_BYTES - way->tail;
    size_t gap = to_end < size ? to_end : 0;
    if (way->used + gap + size > QUEUE_BYTES)
        return NULL;
    if (gap > 0) {
        struct record *filler = (struct record *)(way->queue + way->tail);
        *filler = (struct record){.size_bytes = (uint32_t)gap};
        way->used += gap;
        way->tail = 0;
    }
    return (struct record *)(way->queue + way->tail);
}

static void append(struct direction *way, size_t size)
{
    way->used += size;
    way->tail = (way->tail + size) % QUEUE_BYTES;
}

static struct record *first(struct direction *way)
{
    while (way->used > 0) {
        struct record *record = (struct record *)(way->queue + way->head);
        if (record->length_bytes > 0)
            return record;
        way->used -= record->size_bytes;
        way->head = 0;
    }
    return NULL;
}

static void admit(struct direction *way, const struct line *line, const unsigned char *frame, size_t length)
{
    uint64_t now = now_ns();
    if (is_lost(way, line->loss_ppb)) {
        way->lost_count++;
        return;
    }
    if (way->line_free_ns < now)
        way->line_free_ns = now;
    size_t size = (sizeof(struct record) + length + 15) & ~(size_t)15;
    struct record *record = way->line_free_ns - now > BUFFER_NS ? NULL : reserve(way, size);
    if (record == NULL) {
        way->overflow_count++;
        return;
    }
    if (line->rate_bps > 0)
        way->line_free_ns += (uint64_t)length * 8 * NS_PER_S / line->rate_bps;
    record->due_ns = way->line_free_ns + line->delay_ns;
    record->length_bytes = (uint32_t)length;
    record->size_bytes = (uint32_t)size;
    memcpy(record + 1, frame, length);
    append(way, size);
}

static void take_in(struct direction *way, const struct line *line)
{
    static unsigned char frame[FRAME_BYTES_MAX];
    for (int turn = 0; turn < READS_PER_TURN; turn++) {
        ssize_t length = read(way->from, frame, sizeof frame);
        if (length > 0) {
            admit(way, line, frame, (size_t)length);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            die("reading from the tap");
        }
    }
}

/* Deliver all due frames. Returns the time at which the next one is due, or UINT64_MAX. */
static uint64_t give_out(struct direction *way)
{
    struct record *record;
    while ((record = first(way)) != NULL) {
        uint64_t now = now_ns();
        if (record->due_ns > now)
            return record->due_ns;
        if (now - record->due_ns > way->late_max_ns)
            way->late_max_ns = now - record->due_ns;
        ssize_t written = write(way->to, record + 1, record->length_bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            way->overflow_count++; /* the far side is down or out of memory: the frame is gone */
        } else {
            way->given_ns = now;
            way->frame_count++;
            way->byte_count += record->length_bytes;
        }
        way->used -= record->size_bytes;
        way->head = (way->head + record->size_bytes) % QUEUE_BYTES;
    }
    return UINT64_MAX;
}

static int open_tap(const char *namespace_path, const char *interface)
{
    int namespace = open(namespace_path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0 || setns(namespace, CLONE_NEWNET) < 0)
        die(namespace_path);
    close(namespace);
    int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tap < 0)
        die("/dev/net/tun");
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
    if (ioctl(tap, TUNSETIFF, &request) < 0)
        die("making the tap");
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_qlen = QUEUE_FRAMES;
    if (control < 0 || ioctl(control, SIOCSIFTXQLEN, &request) < 0)
        die("queue length of the tap");
    close(control);
    return tap;
}

static void open_direction(struct direction *way, const char *name, int from, int to, uint64_t seed)
{
    void *queue = mmap(NULL, QUEUE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (queue == MAP_FAILED)
        die("memory for the queue");
    *way = (struct direction){.name = name, .from = from, .to = to, .queue = queue};
    way->random_state = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
    for (int round = 0; round < 8; round++)
        next_random(&way->random_state);
}

static int open_control(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        die(path);
    }
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 4) < 0)
        die(path);
    return listener;
}

static int print_direction(char *text, size_t room, const struct direction *way)
{
    return snprintf(text, room,
                    "\"%s\":{\"frame_count\":%" PRIu64 ",\"byte_count\":%" PRIu64 ",\"lost_count\":%" PRIu64
                    ",\"overflow_count\":%" PRIu64 ",\"late_max_ns\":%" PRIu64 "}",
                    way->name, way->frame_count, way->byte_count, way->lost_count, way->overflow_count, way->late_max_ns);
}

static void answer(int client, struct line *line, struct direction ways[2])
{
    char request[128] = "";
    if (recv(client, request, sizeof request - 1, 0) > 0) {
        struct line wanted;
        if (sscanf(request, "set %" SCNu64 " %" SCNu64 " %" SCNu64, &wanted.delay_ns, &wanted.rate_bps, &wanted.loss_ppb) ==
            3) {
            *line = wanted;
            for (int i = 0; i < 2; i++)
                ways[i].line_free_ns = 0;
        }
        char text[1024], a_to_b[400], b_to_a[400];
        print_direction(a_to_b, sizeof a_to_b, &ways[0]);
        print_direction(b_to_a, sizeof b_to_a, &ways[1]);
        int length =
            snprintf(text, sizeof text, "{\"delay_ns\":%" PRIu64 ",\"rate_bps\":%" PRIu64 ",\"loss_ppb\":%" PRIu64 ",%s,%s}\n",
                     line->delay_ns, line->rate_bps, line->loss_ppb, a_to_b, b_to_a);
        send(client, text, (size_t)length, MSG_NOSIGNAL);
    }
}

/* Frames wait for a timer here: wake up exactly, and before processes that compute. */
static void be_prompt(void)
{
    struct sched_param parameters = {.sched_priority = PRIORITY};
    prctl(PR_SET_TIMERSLACK, 1UL);
    if (sched_setscheduler(0, SCHED_RR, &parameters) < 0)
        setpriority(PRIO_PROCESS, 0, NICENESS);
}

/* How long to sleep for a frame that is due at `due_ns`. A lone frame (usually a probe) must be exact: sleep less,
 * by the amount by which recent sleeps were too long, and poll for the rest. In a dense stream that would mean constant
 * polling, which is not worth a core. */
static uint64_t sleep_ns(uint64_t due_ns, uint64_t given_ns, uint64_t lead_ns)
{
    if (due_ns == UINT64_MAX)
        return NS_PER_S;
    uint64_t now = now_ns();
    if (due_ns < given_ns + LONE_NS)
        lead_ns = 0;
    return due_ns > now + lead_ns ? due_ns - now - lead_ns : 0;
}

static void carry(int listener, struct line *line, struct direction ways[2])
{
    struct pollfd polled[4] = {{.fd = ways[0].from, .events = POLLIN},
                               {.fd = ways[1].from, .events = POLLIN},
                               {.fd = listener, .events = POLLIN},
                               {.fd = -1, .events = POLLIN}}; /* who came and has not asked yet: frames do not wait for it */
    uint64_t lead_ns = 0;                                     /* the last of it is spent polling without sleep */
    uint64_t came_ns = 0;
    while (!ended) {
        uint64_t due_a_ns = give_out(&ways[0]), due_b_ns = give_out(&ways[1]);
        uint64_t due_ns = due_a_ns < due_b_ns ? due_a_ns : due_b_ns;
        uint64_t given_ns = ways[0].given_ns > ways[1].given_ns ? ways[0].given_ns : ways[1].given_ns;
        uint64_t wait_ns = sleep_ns(due_ns, given_ns, lead_ns);
        struct timespec wait = {.tv_sec = (time_t)(wait_ns / NS_PER_S), .tv_nsec = (long)(wait_ns % NS_PER_S)};
        uint64_t wanted_ns = now_ns() + wait_ns;
        polled[2].fd = polled[3].fd < 0 ? listener : -1;
        int ready = ppoll(polled, 4, &wait, NULL);
        if (ready < 0) {
            if (errno == EINTR)
                continue;
            die("waiting");
        }
        if (ready == 0 && wait_ns > 0) {
            uint64_t late_ns = now_ns() - wanted_ns;
            lead_ns += late_ns / LEAD_WEIGHT;
            lead_ns -= lead_ns / LEAD_WEIGHT;
            if (lead_ns > LEAD_MAX_NS)
                lead_ns = LEAD_MAX_NS;
        }
        if (polled[0].revents)
            take_in(&ways[0], line);
        if (polled[1].revents)
            take_in(&ways[1], line);
        if (polled[2].revents) {
            polled[3].fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            polled[3].revents = 0;
            came_ns = now_ns();
        }
        if (polled[3].revents)
            answer(polled[3].fd, line, ways);
        if (polled[3].fd >= 0 && (polled[3].revents || now_ns() > came_ns + PATIENCE_NS)) {
            close(polled[3].fd);
            polled[3].fd = -1;
        }
    }
}

static void on_signal(int number)
{
    (void)number;
    ended = 1;
}

static uint64_t number_of(const char *text, const char *what)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') {
        fprintf(stderr, "error: wire: %s: '%s' is not a whole number\n", what, text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    if (argc != 9) {
        fprintf(stderr, "usage: wire SOCKET NETNS_A NETNS_B INTERFACE DELAY_NS RATE_BPS LOSS_PPB SEED\n");
        return 2;
    }
    struct line line = {.delay_ns = number_of(argv[5], "DELAY_NS"),
                        .rate_bps = number_of(argv[6], "RATE_BPS"),
                        .loss_ppb = number_of(argv[7], "LOSS_PPB")};
    uint64_t seed = number_of(argv[8], "SEED");
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    int tap_a = open_tap(argv[2], argv[4]);
    int tap_b = open_tap(argv[3], argv[4]);
    struct direction ways[2];
    open_direction(&ways[0], "a_to_b", tap_a, tap_b, 2 * seed + 1);
    open_direction(&ways[1], "b_to_a", tap_b, tap_a, 2 * seed + 2);
    int listener = open_control(argv[1]);
    be_prompt();
    carry(listener, &line, ways);
    return 0;
}
