/* See capture.h. */
#include "capture/capture.h"

#include "base/clock.h"
#include "capture/headers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HPCQ_LIBPCAP

#include <dlfcn.h>
#include <pcap/pcap.h>
#include <signal.h>

static const uint64_t nap_ns = 2000000; /* the ring below holds what comes meanwhile */
enum { RING_BYTES = 16 << 20 };

#define PCAP_FUNCTIONS(ONE)                                                                                            \
    ONE(create);                                                                                                       \
    ONE(set_snaplen);                                                                                                  \
    ONE(set_promisc);                                                                                                  \
    ONE(set_immediate_mode);                                                                                           \
    ONE(set_buffer_size);                                                                                              \
    ONE(set_tstamp_precision);                                                                                         \
    ONE(activate);                                                                                                     \
    ONE(datalink);                                                                                                     \
    ONE(compile);                                                                                                      \
    ONE(setfilter);                                                                                                    \
    ONE(freecode);                                                                                                     \
    ONE(setnonblock);                                                                                                  \
    ONE(dispatch);                                                                                                     \
    ONE(stats);                                                                                                        \
    ONE(geterr);                                                                                                       \
    ONE(statustostr);                                                                                                  \
    ONE(close);

/* The functions of the library, found by name. */
static struct {
#define FIELD(name) __typeof__(pcap_##name) *name
    PCAP_FUNCTIONS(FIELD)
} pcap;

static bool function_find(void *library, const char *name, void *function, size_t bytes, char *reason)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, bytes);
    if (!found)
        snprintf(reason, CAPTURE_REASON_BYTES, "libpcap of this node lacks %s()", name);
    return found;
}

static bool library_open(struct capture *capture, char *reason)
{
    static const char *const names[] = {"libpcap.so.0.8", "libpcap.so.1", "libpcap.so"};
    for (size_t i = 0; !capture->library && i < sizeof names / sizeof names[0]; i++)
        capture->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!capture->library) {
        snprintf(reason, CAPTURE_REASON_BYTES, "this node has no libpcap (%s)", dlerror());
        return false;
    }
    bool all = true;
#define FIND(name) all = all && function_find(capture->library, "pcap_" #name, &pcap.name, sizeof pcap.name, reason)
    PCAP_FUNCTIONS(FIND)
    return all;
}

static bool refused(const struct capture *capture, char *reason, const char *what, int status)
{
    if (status == PCAP_ERROR_PERM_DENIED)
        snprintf(reason, CAPTURE_REASON_BYTES,
                 "CAP_NET_RAW is missing (root, or `setcap cap_net_raw+ep` on the program)");
    else
        snprintf(reason, CAPTURE_REASON_BYTES, "%.90s: %s %.90s", what, pcap.statustostr(status),
                 pcap.geterr(capture->handle));
    return false;
}

static bool handle_open(struct capture *capture, const struct address *local, const struct address *peer, char *reason)
{
    char device[IF_NAMESIZE] = "lo", error[PCAP_ERRBUF_SIZE] = "", host[ADDRESS_TEXT_BYTES], filter[160];
    struct bpf_program program;
    if (!address_same(local, peer))
        address_interface(local, device);
    pcap_t *handle = pcap.create(*device ? device : "any", error);
    if (!handle) {
        snprintf(reason, CAPTURE_REASON_BYTES, "%.200s", error);
        return false;
    }
    capture->handle = handle;
    pcap.set_snaplen(handle, CAPTURE_PACKET_BYTES);
    pcap.set_promisc(handle, 0);
    pcap.set_immediate_mode(handle, 1);
    pcap.set_buffer_size(handle, RING_BYTES);
    int status = pcap.set_tstamp_precision(handle, PCAP_TSTAMP_PRECISION_NANO);
    if (status)
        return refused(capture, reason, "time stamps of ns", status);
    if ((status = pcap.activate(handle)) < 0)
        return refused(capture, reason, device, status);
    capture->link = pcap.datalink(handle);
    address_text(peer, host);
    host[strcspn(host, "%")] = '\0';
    snprintf(filter, sizeof filter, "host %s and port %u", host, capture->port);
    if (pcap.compile(handle, &program, filter, 1, PCAP_NETMASK_UNKNOWN))
        return refused(capture, reason, filter, PCAP_ERROR);
    status = pcap.setfilter(handle, &program);
    pcap.freecode(&program);
    return (!status && !(status = pcap.setnonblock(handle, 1, error))) || refused(capture, reason, filter, status);
}

static void packet_take(u_char *argument, const struct pcap_pkthdr *head, const u_char *packet)
{
    struct capture *capture = (struct capture *)(void *)argument;
    struct header header;
    if (!header_read(capture->link, packet, head->caplen, head->len, capture->port, &header) ||
        (!(header.flags & HEADER_SYN) && !__atomic_load_n(&capture->recording, __ATOMIC_ACQUIRE)))
        return;
    struct pcap_record record = {(uint32_t)head->ts.tv_sec, (uint32_t)head->ts.tv_usec, head->caplen, head->len};
    if (capture->full || capture->file.length + sizeof record + head->caplen > capture->max_bytes) {
        capture->full = true;
        return;
    }
    text_add(&capture->file, &record, sizeof record);
    text_add(&capture->file, packet, head->caplen);
    capture->packet_count++;
}

static uint64_t clock_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void *capture_live(void *argument)
{
    struct capture *capture = argument;
    bool counted = false;
    while (!__atomic_load_n(&capture->stopping, __ATOMIC_ACQUIRE)) {
        if (!counted && __atomic_load_n(&capture->recording, __ATOMIC_ACQUIRE)) {
            capture->cpu_start_ns = clock_of(CLOCK_THREAD_CPUTIME_ID);
            counted = true;
        }
        if (pcap.dispatch(capture->handle, -1, packet_take, argument) <= 0)
            clock_sleep_until(clock_now_ns() + nap_ns);
    }
    clock_sleep_until(clock_now_ns() + nap_ns);
    while (pcap.dispatch(capture->handle, -1, packet_take, argument) > 0)
        continue;
    capture->cpu_ns = clock_of(CLOCK_THREAD_CPUTIME_ID) - capture->cpu_start_ns;
    return NULL;
}

static bool thread_start(struct capture *capture, char *reason)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the first thread's */
    int rc = pthread_create(&capture->thread, NULL, capture_live, capture);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        snprintf(reason, CAPTURE_REASON_BYTES, "pthread_create: %s", strerror(rc));
    capture->started = !rc;
    return !rc;
}

struct capture *capture_start(const struct address *local, const struct address *peer, unsigned port, size_t max_bytes,
                              char reason[CAPTURE_REASON_BYTES])
{
    struct capture *capture = memory_new(1, sizeof *capture);
    capture->port = port;
    capture->max_bytes = max_bytes;
    if (library_open(capture, reason) && handle_open(capture, local, peer, reason)) {
        struct pcap_head head = {PCAP_MAGIC_NS, 2, 4, 0, 0, CAPTURE_PACKET_BYTES, (uint32_t)capture->link};
        text_add(&capture->file, &head, sizeof head);
        if (thread_start(capture, reason))
            return capture;
    }
    capture_free(capture);
    return NULL;
}

void capture_record(struct capture *capture)
{
    capture->wall_start_ns = clock_of(CLOCK_REALTIME);
    capture->start_ns = clock_now_ns();
    __atomic_store_n(&capture->recording, 1, __ATOMIC_RELEASE);
}

void capture_stop(struct capture *capture)
{
    struct pcap_stat stat = {0};
    if (!capture->started)
        return;
    __atomic_store_n(&capture->stopping, 1, __ATOMIC_RELEASE);
    pthread_join(capture->thread, NULL);
    capture->started = false;
    capture->clock_moved_ns =
        (int64_t)(clock_of(CLOCK_REALTIME) - capture->wall_start_ns) - (int64_t)(clock_now_ns() - capture->start_ns);
    if (!pcap.stats(capture->handle, &stat))
        capture->dropped_count = stat.ps_drop;
}

void capture_free(struct capture *capture)
{
    if (!capture)
        return;
    capture_stop(capture);
    if (capture->handle)
        pcap.close(capture->handle);
    if (capture->library)
        dlclose(capture->library);
    text_free(&capture->file);
    free(capture);
}

#else

struct capture *capture_start(const struct address *local, const struct address *peer, unsigned port, size_t max_bytes,
                              char reason[CAPTURE_REASON_BYTES])
{
    (void)local, (void)peer, (void)port, (void)max_bytes;
    snprintf(reason, CAPTURE_REASON_BYTES,
             "this program was built without libpcap: pkg-config did not find it (Debian: libpcap-dev)");
    return NULL;
}

void capture_record(struct capture *capture)
{
    (void)capture;
}

void capture_stop(struct capture *capture)
{
    (void)capture;
}

void capture_free(struct capture *capture)
{
    (void)capture;
}

#endif
