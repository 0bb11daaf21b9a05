/* See endpoint.h. */
#include "fabric/endpoint.h"

#include "base/signals.h"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { API_MAJOR = 1, API_MINOR = 14, COLD_BYTES = 256 << 20, NAME_BYTES_MAX = 512 };
static const uint64_t spin_limit_ns = 1000000; /* between looks at the control channel */
static const uint64_t yield_after_ns = 100000; /* the peer may need this CPU */
static const uint64_t greet_limit_ns = 10000000000;
static const int sleep_limit_ms = 20;
enum { ENDS_WITHIN_S = 10 }; /* once the peer has ended; the kernels need a fraction of a second */

const char *const fabric_providers[] = {"any",  "tcp",           "shm",           "udp;ofi_rxd", "sockets",
                                        "net",  "verbs;ofi_rxm", "verbs;ofi_rxd", "cxi",         "efa",
                                        "psm2", "psm3",          "opx",           "ucx",         NULL};
const char *const fabric_waits[] = {"spin", "sleep", NULL};
const char *const fabric_buffers[] = {"hot", "cold", NULL};
const char *const fabric_registers[] = {"once", "each", NULL};
const char *const fabric_directions[] = {"client_to_server", "server_to_client", NULL};

static bool fabric_failed(struct run *run, const char *what, int returned)
{
    return fail(&run->failure, EXIT_SYSTEM, "%s: %s", what, fi_strerror(-returned));
}

static const char *heard(const struct run *run, const char *name)
{
    for (size_t i = 0; i < run->heard.count; i++)
        if (!strcmp(run->heard.list[i].name, name))
            return run->heard.list[i].value;
    return NULL;
}

static struct fi_info *hints_new(const struct endpoint_need *need, const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        return NULL;
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = need->capabilities;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->tx_attr->op_flags = need->flags;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    if (provider)
        hints->fabric_attr->prov_name = strdup(provider);
    return hints;
}

/* Memory of the host is no network, though libfabric may put it first. */
static bool is_network(const struct fi_info *info)
{
    return strncmp(info->fabric_attr->prov_name, "shm", 3) != 0;
}

static const char *first_network(const struct fi_info *list)
{
    for (; list; list = list->next)
        if (is_network(list))
            return list->fabric_attr->prov_name;
    return NULL;
}

/* The device of the interface under test where the provider goes by addresses of IP; else its first. */
static int info_of(const struct run *run, const struct endpoint_need *need, const char *provider,
                   struct fi_info **found)
{
    char node[ADDRESS_TEXT_BYTES];
    struct fi_info *hints = hints_new(need, provider);
    int returned = -FI_ENODATA;
    *found = NULL;
    address_text(&run->local, node);
    if (hints && strncmp(provider, "shm", 3) != 0)
        returned = fi_getinfo(FI_VERSION(API_MAJOR, API_MINOR), node, NULL, FI_SOURCE, hints, found);
    if (hints && returned)
        returned = fi_getinfo(FI_VERSION(API_MAJOR, API_MINOR), NULL, NULL, 0, hints, found);
    if (hints)
        fi_freeinfo(hints);
    return returned;
}

/* What the server says that it has, else what the options say, else the first of this node. */
static bool provider_of(struct run *run, const struct endpoint *endpoint, const struct endpoint_need *need, char *name,
                        size_t room)
{
    const char *told = heard(run, "provider");
    struct fi_info *list = NULL, *hints;
    if (told || endpoint->settings.provider) {
        snprintf(name, room, "%s", told ? told : fabric_providers[endpoint->settings.provider]);
        return true;
    }
    hints = hints_new(need, NULL);
    if (hints && !fi_getinfo(FI_VERSION(API_MAJOR, API_MINOR), NULL, NULL, 0, hints, &list) && first_network(list))
        snprintf(name, room, "%s", first_network(list));
    if (hints)
        fi_freeinfo(hints);
    if (list)
        fi_freeinfo(list);
    if (*name)
        return true;
    fail_hint(&run->failure, "`fi_info -t FI_EP_RDM` lists what libfabric has on this node; FI_PROVIDER narrows it");
    return fail(&run->failure, EXIT_USAGE,
                "provider: found no provider of libfabric here that can do this: allowed: one");
}

/* The ports of the cluster file hold for the providers over TCP too. */
static void ports_of(const struct run *run)
{
    char text[16];
    if (!run->ports.first)
        return;
    snprintf(text, sizeof text, "%u", run->ports.first);
    setenv("FI_TCP_PORT_LOW_RANGE", text, 0);
    snprintf(text, sizeof text, "%u", run->ports.last);
    setenv("FI_TCP_PORT_HIGH_RANGE", text, 0);
}

/* tcp is tcp;ofi_rxm where libfabric lays that upon it. */
static bool is_named(const struct fi_info *info, const char *name)
{
    size_t length = strlen(name);
    const char *has = info->fabric_attr->prov_name;
    return !strncmp(has, name, length) && (!has[length] || has[length] == ';');
}

/* What could be named instead, each once. */
static void providers_put(const struct endpoint_need *need, struct text *out)
{
    struct fi_info *list = NULL, *hints = hints_new(need, NULL);
    if (hints && !fi_getinfo(FI_VERSION(API_MAJOR, API_MINOR), NULL, NULL, 0, hints, &list))
        for (size_t i = 1; fabric_providers[i]; i++) {
            const struct fi_info *one = list;
            while (one && !is_named(one, fabric_providers[i]))
                one = one->next;
            if (one)
                text_print(out, "%s%s", out->length ? " " : "", fabric_providers[i]);
        }
    if (list)
        fi_freeinfo(list);
    if (hints)
        fi_freeinfo(hints);
}

static bool info_open(struct run *run, struct endpoint *endpoint, const struct endpoint_need *need)
{
    char provider[64] = "";
    ports_of(run);
    if (!provider_of(run, endpoint, need, provider, sizeof provider))
        return false;
    int returned = info_of(run, need, provider, &endpoint->info);
    if (!returned)
        return true;
    if (returned != -FI_ENODATA && returned != -FI_ENOSYS)
        return fabric_failed(run, "fi_getinfo", returned);
    fail_hint(&run->failure, "`fi_info -t FI_EP_RDM` lists what libfabric has on this node; FI_PROVIDER narrows it");
    struct text others = {0};
    providers_put(need, &others);
    fail(&run->failure, EXIT_USAGE, "provider: found %s, which libfabric does not have for this on the %s: allowed: %s",
         provider, run->is_server ? "server" : "client",
         others.length ? text_string(&others) : "none, it has no provider at all");
    text_free(&others);
    return false;
}

static bool queue_open(struct run *run, struct endpoint *endpoint, const struct endpoint_need *need)
{
    bool sleeps = endpoint->settings.wait_by == WAIT_OBJECT;
    struct fi_cq_attr attributes = {.format = FI_CQ_FORMAT_TAGGED,
                                    .size = 2 * need->window_count + 64,
                                    .wait_obj = sleeps ? FI_WAIT_FD : FI_WAIT_NONE};
    int returned = fi_cq_open(endpoint->domain, &attributes, &endpoint->queue, NULL);
    if (!returned)
        return true;
    if (sleeps && (returned == -FI_ENOSYS || returned == -FI_EINVAL || returned == -FI_EOPNOTSUPP))
        return fail(&run->failure, EXIT_USAGE, "wait_by: found sleep: allowed with %s: spin (it has no wait object)",
                    endpoint->info->fabric_attr->prov_name);
    return fabric_failed(run, "fi_cq_open", returned);
}

/* Whether memory has a key of our choice: the session's, which a stranger does not know. */
static uint64_t key_of(struct endpoint *endpoint)
{
    const struct fi_domain_attr *domain = endpoint->info->domain_attr;
    if (domain->mr_mode & FI_MR_PROV_KEY)
        return 0;
    uint64_t mask = domain->mr_key_size >= sizeof(uint64_t) ? UINT64_MAX : (1ULL << (8 * domain->mr_key_size)) - 1;
    return endpoint->key_next++ & mask;
}

static int memory_register(struct endpoint *endpoint, void *at, size_t bytes, uint64_t access, struct fid_mr **made)
{
    struct iovec place = {.iov_base = at, .iov_len = bytes};
    struct fi_mr_attr attributes = {
        .mr_iov = &place, .iov_count = 1, .access = access, .requested_key = key_of(endpoint), .iface = FI_HMEM_SYSTEM};
    int returned = fi_mr_regattr(endpoint->domain, &attributes, 0, made);
    if (!returned && endpoint->info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
        returned = fi_mr_bind(*made, &endpoint->ways[0].ep->fid, 0); /* and there is one */
        returned = returned ? returned : fi_mr_enable(*made);
    }
    return returned;
}

static bool endpoint_memory(struct run *run, struct endpoint *endpoint, const struct endpoint_need *need)
{
    size_t page = PLACED_PAGE_BYTES;
    endpoint->slot_bytes = need->slot_bytes ? need->slot_bytes : 1;
    endpoint->slot_stride = (endpoint->slot_bytes + page - 1) / page * page;
    endpoint->slot_count = 1;
    if (endpoint->settings.buffers == BUFFERS_COLD && endpoint->slot_stride < COLD_BYTES)
        endpoint->slot_count = COLD_BYTES / endpoint->slot_stride;
    endpoint->out_count = need->sends ? endpoint->slot_count : 0;
    endpoint->slot_total = endpoint->out_count + (need->receives ? endpoint->slot_count : 0);
    size_t bytes = endpoint->slot_stride * (endpoint->slot_total - 1) + endpoint->slot_bytes;
    endpoint->area = run_buffer(run, bytes);
    memset(endpoint->area, 0, bytes);
    for (size_t slot = 0; slot < endpoint->out_count; slot++)
        memory_noise(endpoint_at(endpoint, slot), endpoint->slot_bytes);
    int returned = memory_register(endpoint, endpoint->area, bytes, need->access, &endpoint->registered);
    return !returned || fabric_failed(run, "fi_mr_reg", returned);
}

static void session_names(const struct run *run, struct endpoint *endpoint)
{
    uint8_t token[CONTROL_TOKEN_BYTES];
    uint32_t tag, key;
    control_token(&run->control, token);
    memcpy(&tag, token, sizeof tag);
    memcpy(&key, token + sizeof tag, sizeof key);
    endpoint->tag = (uint64_t)tag << 4; /* some providers have 40 bits or so */
    endpoint->key_next = key;
}

static bool way_open(struct run *run, struct endpoint *endpoint, struct way *way)
{
    const char *what = "fi_endpoint";
    way->peer = FI_ADDR_UNSPEC;
    int returned = fi_endpoint(endpoint->domain, endpoint->info, &way->ep, NULL);
    if (!returned)
        what = "fi_ep_bind", returned = fi_ep_bind(way->ep, &endpoint->addresses->fid, 0);
    if (!returned)
        returned = fi_ep_bind(way->ep, &endpoint->queue->fid, FI_TRANSMIT | FI_RECV);
    if (!returned)
        what = "fi_enable", returned = fi_enable(way->ep);
    /* shm names its memory after the process. What a killed one of the same number left is removed by the first call,
     * which fails. */
    if (returned == -FI_EBUSY)
        returned = fi_enable(way->ep);
    return !returned || fabric_failed(run, what, returned);
}

static bool ways_fit(struct run *run, const struct endpoint *endpoint)
{
    if (endpoint->way_count == 1 || !(endpoint->info->domain_attr->mr_mode & FI_MR_ENDPOINT))
        return true;
    return fail(&run->failure, EXIT_USAGE,
                "endpoint_count: found %zu: allowed with %s: 1 (it registers memory for one endpoint)",
                endpoint->way_count, endpoint->info->fabric_attr->prov_name);
}

bool endpoint_open(struct run *run, struct endpoint *endpoint, const struct endpoint_settings *settings,
                   const struct endpoint_need *need)
{
    struct fi_av_attr table = {.type = FI_AV_TABLE, .count = 2 * ENDPOINT_COUNT_MAX};
    const char *what = "fi_fabric";
    *endpoint = (struct endpoint){.settings = *settings, .way_count = settings->count ? (size_t)settings->count : 1};
    session_names(run, endpoint);
    if (!info_open(run, endpoint, need) || !ways_fit(run, endpoint))
        return false;
    struct fi_info *info = endpoint->info;
    int returned = fi_fabric(info->fabric_attr, &endpoint->fabric, NULL);
    if (!returned)
        what = "fi_domain", returned = fi_domain(endpoint->fabric, info, &endpoint->domain, NULL);
    if (!returned)
        what = "fi_av_open", returned = fi_av_open(endpoint->domain, &table, &endpoint->addresses, NULL);
    if (returned)
        return fabric_failed(run, what, returned);
    if (!queue_open(run, endpoint, need))
        return false;
    for (size_t i = 0; i < endpoint->way_count; i++)
        if (!way_open(run, endpoint, &endpoint->ways[i]))
            return false;
    return endpoint_memory(run, endpoint, need);
}

static void tell_unsigned(struct run *run, const char *name, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    notes_add(&run->told, name, text);
}

/* What the address of the endpoint of this number is called between the ends. */
static void name_of_way(size_t number, char word[24])
{
    snprintf(word, 24, number ? "name_%zu" : "name", number);
}

static void way_tell(struct run *run, const struct endpoint *endpoint, size_t number)
{
    static const char digits[] = "0123456789abcdef";
    char word[24];
    uint8_t name[NAME_BYTES_MAX] = {0};
    char text[2 * NAME_BYTES_MAX + 1] = "";
    size_t length = sizeof name;
    if (fi_getname(&endpoint->ways[number].ep->fid, name, &length))
        length = 0;
    for (size_t i = 0; i < length; i++) {
        text[2 * i] = digits[name[i] >> 4];
        text[2 * i + 1] = digits[name[i] & 15];
    }
    name_of_way(number, word);
    notes_add(&run->told, word, text);
}

void endpoint_tell(struct run *run, struct endpoint *endpoint)
{
    bool by_address = endpoint->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
    notes_add(&run->told, "provider", endpoint->info->fabric_attr->prov_name);
    for (size_t i = 0; i < endpoint->way_count; i++)
        way_tell(run, endpoint, i);
    tell_unsigned(run, "key", fi_mr_key(endpoint->registered));
    tell_unsigned(run, "memory", by_address ? (uint64_t)(uintptr_t)endpoint->area : 0);
}

static unsigned nibble(char letter)
{
    return (unsigned)(letter <= '9' ? letter - '0' : letter - 'a' + 10) & 15U;
}

/* A peer that is killed may hold a lock in memory that both share (shm), and libfabric then waits for it for ever, on a
 * core of a node that belongs to others. Its control channel shows that it has ended. */
static void *watch_peer(void *at)
{
    static const char words[] = "hpcq-fabric: libfabric did not return within 10 s after the peer had ended\n";
    struct pollfd peer = {.fd = ((const struct run *)at)->control.descriptor, .events = POLLRDHUP};
    while (poll(&peer, 1, -1) < 0)
        ;
    sleep(ENDS_WITHIN_S);
    ssize_t written = write(STDERR_FILENO, words, sizeof words - 1);
    _exit(written < 0 ? EXIT_SYSTEM : EXIT_PEER);
}

/* Signals stay with the thread that measures. */
static bool watch(struct run *run, struct endpoint *endpoint)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int returned = pthread_create(&endpoint->watcher, NULL, watch_peer, run);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    endpoint->is_watched = !returned;
    return !returned || fail(&run->failure, EXIT_SYSTEM, "pthread_create: %s", strerror(returned));
}

static bool way_join(struct run *run, struct endpoint *endpoint, size_t number)
{
    char word[24];
    name_of_way(number, word);
    const char *text = heard(run, word);
    uint8_t name[NAME_BYTES_MAX] = {0};
    size_t length = text ? strlen(text) / 2 : 0;
    if (!length || length > sizeof name || strspn(text, "0123456789abcdef") != 2 * length)
        return fail(&run->failure, EXIT_PEER, "the peer did not say the address of its endpoint");
    for (size_t i = 0; i < length; i++)
        name[i] = (uint8_t)(nibble(text[2 * i]) << 4 | nibble(text[2 * i + 1]));
    int inserted = fi_av_insert(endpoint->addresses, name, 1, &endpoint->ways[number].peer, 0, NULL);
    return inserted == 1 ||
           fail(&run->failure, EXIT_PEER, "fi_av_insert: the address of the peer's endpoint is not one of %s",
                endpoint->info->fabric_attr->prov_name);
}

bool endpoint_join(struct run *run, struct endpoint *endpoint)
{
    const char *key = heard(run, "key"), *memory = heard(run, "memory");
    if (!watch(run, endpoint))
        return false;
    if (!key || !memory)
        return fail(&run->failure, EXIT_PEER, "the peer did not say where its memory is");
    endpoint->peer_key = strtoull(key, NULL, 10);
    endpoint->peer_memory = strtoull(memory, NULL, 10);
    for (size_t i = 0; i < endpoint->way_count; i++)
        if (!way_join(run, endpoint, i))
            return false;
    return true;
}

void endpoint_granted(struct run *run, const struct endpoint *endpoint)
{
    const struct fi_info *info = endpoint->info;
    char version[24];
    uint32_t has = fi_version();
    snprintf(version, sizeof version, "%u.%u", FI_MAJOR(has), FI_MINOR(has));
    run_grant_text(run, "provider", info->fabric_attr->prov_name);
    run_grant_text(run, "domain", info->domain_attr->name);
    if (info->nic && info->nic->device_attr && info->nic->device_attr->name)
        run_grant_text(run, "device", info->nic->device_attr->name);
    run_grant_text(run, "libfabric", version);
    run_grant_number(run, "inject_bytes", (double)info->tx_attr->inject_size);
    run_grant_boolean(run, "registers_local", (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0);
}

bool endpoint_small(struct run *run, struct endpoint *endpoint, void *at, size_t bytes)
{
    int returned = memory_register(endpoint, at, bytes, FI_SEND | FI_RECV | FI_READ | FI_WRITE, &endpoint->small);
    return !returned || fabric_failed(run, "fi_mr_reg", returned);
}

static void unregister(struct operation *operation)
{
    if (operation->registered)
        fi_close(&operation->registered->fid);
    operation->registered = NULL;
}

void endpoint_forget(struct operation *operations, size_t count)
{
    for (size_t i = 0; operations && i < count; i++)
        unregister(&operations[i]);
}

void endpoint_close(struct endpoint *endpoint)
{
    for (size_t i = 0; i < endpoint->way_count; i++)
        if (endpoint->ways[i].ep)
            fi_close(&endpoint->ways[i].ep->fid);
    if (endpoint->registered)
        fi_close(&endpoint->registered->fid);
    if (endpoint->small)
        fi_close(&endpoint->small->fid);
    if (endpoint->queue)
        fi_close(&endpoint->queue->fid);
    if (endpoint->addresses)
        fi_close(&endpoint->addresses->fid);
    if (endpoint->domain)
        fi_close(&endpoint->domain->fid);
    if (endpoint->fabric)
        fi_close(&endpoint->fabric->fid);
    if (endpoint->info)
        fi_freeinfo(endpoint->info);
    if (endpoint->is_watched) {
        pthread_cancel(endpoint->watcher);
        pthread_join(endpoint->watcher, NULL);
    }
    *endpoint = (struct endpoint){0};
}

static size_t turn_of(const struct endpoint *endpoint, size_t *turn)
{
    size_t slot = *turn;
    *turn = slot + 1 < endpoint->slot_count ? slot + 1 : 0;
    return slot;
}

size_t endpoint_out(struct endpoint *endpoint)
{
    return turn_of(endpoint, &endpoint->turn_out);
}

size_t endpoint_in(struct endpoint *endpoint)
{
    return endpoint->out_count + turn_of(endpoint, &endpoint->turn_in);
}

const struct way *endpoint_way(struct endpoint *endpoint)
{
    const struct way *way = &endpoint->ways[endpoint->way_turn];
    endpoint->way_turn = endpoint->way_turn + 1 < endpoint->way_count ? endpoint->way_turn + 1 : 0;
    return way;
}

void *endpoint_at(const struct endpoint *endpoint, size_t slot)
{
    return endpoint->area + slot * endpoint->slot_stride;
}

bool endpoint_register(struct run *run, struct endpoint *endpoint, struct operation *operation, void **descriptor)
{
    *descriptor = fi_mr_desc(endpoint->registered);
    if (endpoint->settings.registration == REGISTER_ONCE || operation->registered)
        return true;
    int returned = memory_register(endpoint, endpoint_at(endpoint, operation->slot), endpoint->slot_bytes,
                                   FI_SEND | FI_RECV | FI_READ | FI_WRITE, &operation->registered);
    if (returned)
        return fabric_failed(run, "fi_mr_reg", returned);
    *descriptor = fi_mr_desc(operation->registered);
    return true;
}

bool endpoint_posted(struct run *run, struct operation *operation, ssize_t returned, const char *what)
{
    run->call_count++;
    if (!returned)
        return true;
    if (operation)
        unregister(operation);
    if (returned != -FI_EAGAIN)
        fail(&run->failure, EXIT_PEER, "%s: %s", what, fi_strerror((int)-returned));
    return false;
}

/* An operation failed: why, in the provider's words. */
static void queue_error(struct run *run, struct endpoint *endpoint)
{
    char words[128] = "";
    struct fi_cq_err_entry error = {0};
    if (fi_cq_readerr(endpoint->queue, &error, 0) < 0)
        return;
    const char *said = fi_cq_strerror(endpoint->queue, error.prov_errno, error.err_data, words, sizeof words);
    fail(&run->failure, EXIT_PEER, "an operation of the fabric failed: %s (%s)", fi_strerror(error.err),
         said ? said : "");
}

static bool read_queue(struct run *run, struct endpoint *endpoint, bool sleeps)
{
    ssize_t got = sleeps ? fi_cq_sread(endpoint->queue, endpoint->done, ENDPOINT_BATCH, NULL, sleep_limit_ms)
                         : fi_cq_read(endpoint->queue, endpoint->done, ENDPOINT_BATCH);
    endpoint->done_turn = 0;
    endpoint->done_count = got > 0 ? (size_t)got : 0;
    if (got == -FI_EAVAIL)
        queue_error(run, endpoint);
    else if (got < 0 && got != -FI_EAGAIN && got != -FI_EINTR && got != -FI_ETIMEDOUT && got != -FI_ECANCELED)
        fail(&run->failure, EXIT_PEER, "fi_cq_read: %s", fi_strerror((int)-got));
    return got > 0;
}

struct operation *endpoint_next(struct run *run, struct endpoint *endpoint)
{
    if (endpoint->done_turn == endpoint->done_count && !read_queue(run, endpoint, false))
        return NULL;
    struct operation *operation = endpoint->done[endpoint->done_turn++].op_context;
    endpoint->idle_since_ns = 0;
    if (operation)
        unregister(operation);
    return operation;
}

/* Starts what is not under way yet. */
static bool greet_more(struct run *run, struct endpoint *endpoint,
                       ssize_t (*post)(struct run *, const struct way *, struct operation *),
                       struct operation operations[ENDPOINT_COUNT_MAX], bool begun[ENDPOINT_COUNT_MAX])
{
    for (size_t i = 0; i < endpoint->way_count && !run->failure.failed; i++)
        if (!begun[i])
            begun[i] = endpoint_posted(run, &operations[i], post(run, &endpoint->ways[i], &operations[i]), "greeting");
    return !run->failure.failed;
}

bool endpoint_greet(struct run *run, struct endpoint *endpoint,
                    ssize_t (*post)(struct run *, const struct way *, struct operation *),
                    struct operation operations[ENDPOINT_COUNT_MAX])
{
    bool begun[ENDPOINT_COUNT_MAX] = {0};
    uint64_t until_ns = clock_now_ns() + greet_limit_ns;
    size_t done_count = 0;
    while (done_count < endpoint->way_count) {
        const struct operation *operation;
        if (signals_stop())
            return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
        if (!greet_more(run, endpoint, post, operations, begun))
            return false;
        while ((operation = endpoint_next(run, endpoint)))
            done_count += operation >= operations && operation < operations + ENDPOINT_COUNT_MAX;
        enum step step = run->failure.failed ? STEP_FAILED : endpoint_idle(run, endpoint);
        if (step == STEP_FAILED || (step == STEP_IDLE && !control_silent(&run->control, &run->failure)))
            return false;
        if (clock_now_ns() > until_ns)
            return fail(&run->failure, EXIT_PEER, "%zu of %zu endpoints reached the peer within 10 s", done_count,
                        endpoint->way_count);
    }
    return true;
}

enum step endpoint_idle(struct run *run, struct endpoint *endpoint)
{
    run->now_ns = clock_now_ns();
    if (run->failure.failed)
        return STEP_FAILED;
    if (!endpoint->idle_since_ns)
        endpoint->idle_since_ns = run->now_ns;
    if (endpoint->settings.wait_by == WAIT_OBJECT) {
        bool came = endpoint->done_turn < endpoint->done_count || read_queue(run, endpoint, true);
        run->call_count++;
        run->now_ns = clock_now_ns();
        return run->failure.failed ? STEP_FAILED : came ? STEP_MOVED : STEP_IDLE;
    }
    if (run->now_ns - endpoint->idle_since_ns > yield_after_ns)
        sched_yield();
    if (run->now_ns - endpoint->idle_since_ns < spin_limit_ns)
        return STEP_MOVED;
    endpoint->idle_since_ns = run->now_ns;
    return STEP_IDLE;
}
