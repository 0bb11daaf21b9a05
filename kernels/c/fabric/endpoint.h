/* Endpoints of a libfabric provider, their peers and their memory: opened, posted to, asked for what is complete.
 *
 *   server   listen: endpoint_open, endpoint_tell -> [ready]      open: endpoint_join
 *   client   open:   endpoint_open, endpoint_join, endpoint_tell -> [joined]
 *
 * Endpoints are FI_EP_RDM: reliable, of datagrams of any size, no connection of their own. Messages carry a tag of
 * the session, and memory a key of it: a stranger's match nothing. A provider moves data only while it is asked for
 * completions (manual progress), so an end that waits for its peer keeps asking.
 *
 * Memory is the host's. That of a GPU would be one more choice beside `buffer_pages`: allocated by its own library in
 * endpoint_memory(), and named in fi_mr_attr.iface and .device where this is FI_HMEM_SYSTEM; FI_HMEM among the
 * capabilities asked for. Nothing else here touches what lies in a slot, except the check of what arrived. */
#ifndef HPCQ_ENDPOINT_H
#define HPCQ_ENDPOINT_H

#include "engine/run.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

enum {
    ENDPOINT_MESSAGE_MAX = 1 << 30,
    ENDPOINT_WINDOW_MAX = 1024,
    ENDPOINT_COUNT_MAX = 64,
    ENDPOINT_BATCH = 32 /* completions that one call may bring */
};

enum { WAIT_SPIN, WAIT_OBJECT };
enum { BUFFERS_HOT, BUFFERS_COLD };
enum { REGISTER_ONCE, REGISTER_EACH };
enum { FABRIC_TO_SERVER, FABRIC_TO_CLIENT };
extern const char *const fabric_providers[],
    *const fabric_waits[], *const fabric_buffers[], *const fabric_registers[], *const fabric_directions[];

struct endpoint_settings {
    int64_t provider, wait_by, buffers, registration, count; /* count: 0: one */
};

/* For kernels that have many operations under way. */
#define OPTION_ROW_ENDPOINT_COUNT(type)                                                                                \
    {"endpoint_count",                                                                                                 \
     OPTION_INTEGER,                                                                                                   \
     offsetof(type, endpoint.count),                                                                                   \
     1,                                                                                                                \
     1,                                                                                                                \
     ENDPOINT_COUNT_MAX,                                                                                               \
     NULL,                                                                                                             \
     "endpoints at each end, which share one completion queue and take operations in turn: queue pairs, or "           \
     "connections"}

#define OPTION_ROWS_ENDPOINT(type)                                                                                     \
    {"provider",                                                                                                       \
     OPTION_CHOICE,                                                                                                    \
     offsetof(type, endpoint.provider),                                                                                \
     0,                                                                                                                \
     0,                                                                                                                \
     0,                                                                                                                \
     fabric_providers,                                                                                                 \
     "provider of libfabric at both ends; any: the first that libfabric has on the server's node, of those that "      \
     "FI_PROVIDER allows (environment of the cluster file)"},                                                          \
        {"wait_by",                                                                                                    \
         OPTION_CHOICE,                                                                                                \
         offsetof(type, endpoint.wait_by),                                                                             \
         0,                                                                                                            \
         0,                                                                                                            \
         0,                                                                                                            \
         fabric_waits,                                                                                                 \
         "how both ends wait for a completion: spin (a core) or sleep on the wait object of the queue"},               \
        {"buffers",                                                                                                    \
         OPTION_CHOICE,                                                                                                \
         offsetof(type, endpoint.buffers),                                                                             \
         0,                                                                                                            \
         0,                                                                                                            \
         0,                                                                                                            \
         fabric_buffers,                                                                                               \
         "hot: every message from and into the same memory; cold: through 256 MiB in turn"},                           \
        {"registration",                                                                                               \
         OPTION_CHOICE,                                                                                                \
         offsetof(type, endpoint.registration),                                                                        \
         0,                                                                                                            \
         0,                                                                                                            \
         0,                                                                                                            \
         fabric_registers,                                                                                             \
         "memory is registered once before the measurement, or for each message within what is timed"}

/* What an operation is known by until it is complete. Providers write into `context`: it comes first and stays. */
struct operation {
    struct fi_context2 context;
    unsigned kind; /* of the kernel */
    size_t slot;
    uint64_t start_ns;
    struct fid_mr *registered; /* for it alone; NULL: none */
};

/* One endpoint, and that of the peer which has the same number. */
struct way {
    struct fid_ep *ep;
    fi_addr_t peer;
};

struct endpoint {
    struct endpoint_settings settings;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *addresses;
    struct fid_cq *queue;
    struct way ways[ENDPOINT_COUNT_MAX];
    size_t way_count, way_turn;
    uint64_t tag, key_next, peer_key, peer_memory;
    struct fid_mr *registered; /* the whole area */
    struct fid_mr *small;      /* of endpoint_small(); NULL: none */
    char *area;
    size_t slot_bytes, slot_stride, slot_count; /* of each half: noise to send, then room for what arrives */
    size_t out_count, slot_total, turn_out, turn_in;
    struct fi_cq_tagged_entry done[ENDPOINT_BATCH];
    size_t done_count, done_turn;
    uint64_t idle_since_ns; /* nothing was complete since then; 0: something just was */
    pthread_t watcher;      /* of the peer's end, where is_watched */
    bool is_watched;
};

/* What an endpoint must be able to do, and how much memory it needs. */
struct endpoint_need {
    uint64_t capabilities; /* FI_TAGGED, FI_RMA, FI_ATOMIC */
    uint64_t access;       /* to the memory: FI_SEND | FI_RECV, FI_REMOTE_WRITE, ... */
    uint64_t flags;        /* of what it sends: FI_DELIVERY_COMPLETE */
    bool sends, receives;  /* which halves of memory it needs */
    size_t slot_bytes;
    size_t window_count; /* operations that may be under way */
};

/* Failures are exit 2 where the node has no such provider, else 4. */
bool endpoint_open(struct run *run, struct endpoint *endpoint, const struct endpoint_settings *settings,
                   const struct endpoint_need *need);
void endpoint_tell(struct run *run, struct endpoint *endpoint);
bool endpoint_join(struct run *run, struct endpoint *endpoint);
void endpoint_granted(struct run *run, const struct endpoint *endpoint);
/* Registers memory of the kernel's own, for small things that it sends or receives beside its messages. */
bool endpoint_small(struct run *run, struct endpoint *endpoint, void *at, size_t bytes);
void endpoint_close(struct endpoint *endpoint);
/* Before endpoint_close(): operations that are not complete hold registrations. */
void endpoint_forget(struct operation *operations, size_t count);

/* The slot whose turn it is: of noise to send, or to receive into, which was all 0. */
size_t endpoint_out(struct endpoint *endpoint);
size_t endpoint_in(struct endpoint *endpoint);
void *endpoint_at(const struct endpoint *endpoint, size_t slot);
/* The endpoint whose turn it is. */
const struct way *endpoint_way(struct endpoint *endpoint);

/* Before anything is timed: one operation over each endpoint, which makes the connections where a provider needs some.
 * `post` starts it as fi_tsend() would; operations: one for each endpoint, of nobody else. */
bool endpoint_greet(struct run *run, struct endpoint *endpoint,
                    ssize_t (*post)(struct run *, const struct way *, struct operation *),
                    struct operation operations[ENDPOINT_COUNT_MAX]);

/* Registers the slot of an operation for it alone where `registration: each` says so. NULL and a failure: it cannot. */
bool endpoint_register(struct run *run, struct endpoint *endpoint, struct operation *operation, void **descriptor);
/* What a call of fi_tsend() and its like returned: true when it is under way; else it has to be tried again once
 * something else is complete, or there is a failure. */
bool endpoint_posted(struct run *run, struct operation *operation, ssize_t returned, const char *what);

/* The next operation that is complete; NULL: none now, or a failure. */
struct operation *endpoint_next(struct run *run, struct endpoint *endpoint);
/* As long as an end may look for completions alone: STEP_MOVED, then STEP_IDLE so that the control channel is looked
 * at. With a wait object it sleeps here, 20 ms at most. */
enum step endpoint_idle(struct run *run, struct endpoint *endpoint);

#endif
