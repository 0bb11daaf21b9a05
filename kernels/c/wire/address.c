/* See address.h. */
#include "wire/address.h"

#include "base/clock.h"
#include "base/signals.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool address_parse(const char *text, int family, struct address *out, struct failure *failure)
{
    struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc = getaddrinfo(text, NULL, &hints, &list);
    if (rc == EAI_ADDRFAMILY || rc == EAI_FAMILY)
        return fail(failure, EXIT_USAGE, "bind: found %s: allowed: an address of %s, as the server's is", text,
                    family == AF_INET6 ? "IPv6" : "IPv4");
    if (rc)
        return fail(failure, EXIT_USAGE, "bind: found %s: allowed: an address of this node, or a name of one (%s)",
                    text, gai_strerror(rc));
    memset(out, 0, sizeof *out);
    memcpy(&out->storage, list->ai_addr, list->ai_addrlen);
    out->length = list->ai_addrlen;
    freeaddrinfo(list);
    return true;
}

size_t addresses_parse(const char *text, struct address out[ADDRESSES_MAX], struct failure *failure)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    size_t count = 0;
    int rc = getaddrinfo(text, NULL, &hints, &list);
    if (rc) {
        fail_hint(failure, "`getent hosts %s` shows what this node makes of it", text);
        fail(failure, EXIT_USAGE, "to: found %s: allowed: an address, or a name that this node knows (%s)", text,
             gai_strerror(rc));
        return 0;
    }
    for (const struct addrinfo *one = list; one && count < ADDRESSES_MAX; one = one->ai_next) {
        out[count] = (struct address){.length = one->ai_addrlen};
        memcpy(&out[count++].storage, one->ai_addr, one->ai_addrlen);
    }
    freeaddrinfo(list);
    return count;
}

bool addresses_reach(const char *text, unsigned port, uint64_t deadline_ns,
                     bool (*reach)(void *context, const struct address *to, uint64_t deadline_ns,
                                   struct failure *failure),
                     void *context, struct failure *failure)
{
    struct address to[ADDRESSES_MAX];
    struct failure first = {0}, before = *failure;
    size_t count = addresses_parse(text, to, failure);
    for (size_t i = 0; i < count; i++) {
        uint64_t now_ns = clock_now_ns(), share_ns = deadline_ns > now_ns ? (deadline_ns - now_ns) / (count - i) : 0;
        address_set_port(&to[i], port);
        *failure = before;
        if (reach(context, &to[i], now_ns + share_ns, failure))
            return true;
        if (!i)
            first = *failure;
    }
    if (count)
        *failure = first;
    return false;
}

/* How much an address is preferred; 0 means it does not fit. */
static int address_rank(const struct sockaddr *address, int family)
{
    if (!address || (family != AF_UNSPEC && address->sa_family != family))
        return 0;
    if (address->sa_family == AF_INET)
        return 3;
    if (address->sa_family != AF_INET6)
        return 0;
    struct sockaddr_in6 v6;
    memcpy(&v6, address, sizeof v6);
    return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) ? 1 : 2;
}

bool address_of_interface(const char *interface, int family, struct address *out, struct failure *failure)
{
    struct ifaddrs *list = NULL;
    int best = 0;
    if (getifaddrs(&list))
        return fail_system(failure, "addresses of %s", interface);
    memset(out, 0, sizeof *out);
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        int rank = strcmp(i->ifa_name, interface) ? 0 : address_rank(i->ifa_addr, family);
        if (rank <= best)
            continue;
        best = rank;
        out->length = i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&out->storage, i->ifa_addr, out->length);
    }
    freeifaddrs(list);
    if (best)
        return true;
    fail_hint(failure, "`ip address show` lists the interfaces of this node");
    return fail(failure, EXIT_USAGE, "interface %s: no such interface, or it has no address", interface);
}

static bool address_same_host(const struct sockaddr *a, const struct address *b)
{
    if (!a || a->sa_family != b->storage.ss_family)
        return false;
    if (a->sa_family == AF_INET) {
        struct sockaddr_in x, y;
        memcpy(&x, a, sizeof x);
        memcpy(&y, &b->storage, sizeof y);
        return x.sin_addr.s_addr == y.sin_addr.s_addr;
    }
    struct sockaddr_in6 x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, &b->storage, sizeof y);
    return a->sa_family == AF_INET6 && !memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr);
}

bool address_same(const struct address *a, const struct address *b)
{
    return a->length && address_same_host((const struct sockaddr *)&a->storage, b);
}

void address_interface(const struct address *address, char out[IF_NAMESIZE])
{
    struct ifaddrs *list = NULL;
    out[0] = '\0';
    if (getifaddrs(&list))
        return;
    for (struct ifaddrs *i = list; i && !out[0]; i = i->ifa_next)
        if (address_same_host(i->ifa_addr, address))
            snprintf(out, IF_NAMESIZE, "%s", i->ifa_name);
    freeifaddrs(list);
}

void address_text(const struct address *address, char out[ADDRESS_TEXT_BYTES])
{
    if (getnameinfo((const struct sockaddr *)&address->storage, address->length, out, ADDRESS_TEXT_BYTES, NULL, 0,
                    NI_NUMERICHOST))
        snprintf(out, ADDRESS_TEXT_BYTES, "?");
}

unsigned address_port(const struct address *address)
{
    struct sockaddr_in v4; /* sin_port and sin6_port lie at the same place (RFC 3493 3.3) */
    memcpy(&v4, &address->storage, sizeof v4);
    return ntohs(v4.sin_port);
}

void address_any(struct address *address)
{
    if (address->storage.ss_family == AF_INET6) {
        struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)address_port(address))};
        memcpy(&address->storage, &six, sizeof six);
    } else {
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)address_port(address))};
        memcpy(&address->storage, &four, sizeof four);
    }
}

void address_set_port(struct address *address, unsigned port)
{
    struct sockaddr_in v4;
    memcpy(&v4, &address->storage, sizeof v4);
    v4.sin_port = htons((uint16_t)port);
    memcpy(&address->storage, &v4, sizeof v4);
}

bool address_of_socket(int descriptor, struct address *out)
{
    memset(out, 0, sizeof *out);
    out->length = sizeof out->storage;
    return getsockname(descriptor, (struct sockaddr *)&out->storage, &out->length) == 0;
}

int socket_new(const struct address *address, int type, struct failure *failure)
{
    int descriptor = socket(address->storage.ss_family, type | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        fail_system(failure, "socket");
    return descriptor;
}

/* fe80:: and the like are on every link, and only the interface says on which one. */
static bool address_needs_scope(const struct address *address)
{
    struct sockaddr_in6 six;
    if (address->storage.ss_family != AF_INET6)
        return false;
    memcpy(&six, &address->storage, sizeof six);
    return IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr) && !six.sin6_scope_id;
}

static void scope_hint(const struct address *address, const char *flag, struct failure *failure)
{
    char host[ADDRESS_TEXT_BYTES];
    address_text(address, host);
    fail_hint(failure, "a link-local address names its interface too: %s %s%%eth0", flag, host);
}

/* The lowest port that a process without CAP_NET_BIND_SERVICE may have. */
static unsigned port_first_free(void)
{
    unsigned first = 1024;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "r");
    if (file && fscanf(file, "%u", &first) != 1)
        first = 1024;
    if (file)
        fclose(file);
    return first;
}

/* What this end could not bind to (errno), and what it must be. */
static bool bind_refused(const char *call, const struct address *address, struct port_range range,
                         struct failure *failure)
{
    char host[ADDRESS_TEXT_BYTES], ports[32];
    int error = errno;
    address_text(address, host);
    snprintf(ports, sizeof ports,
             !range.last                 ? "any port"
             : range.first == range.last ? "port %u"
                                         : "ports %u to %u",
             range.first, range.last);
    if (error == EINVAL && address_needs_scope(address)) {
        scope_hint(address, "--bind", failure);
        return fail(failure, EXIT_USAGE, "bind: found %s: allowed: a link-local address with its interface", host);
    }
    if (error == EADDRNOTAVAIL || error == EINVAL) {
        fail_hint(failure, "`ip address show` lists the addresses of this node");
        return fail(failure, EXIT_USAGE, "bind: found %s: allowed: an address of this node", host);
    }
    if (error == EADDRINUSE && range.last) {
        fail_hint(failure, "`ss -anp` shows who has it");
        return fail(failure, EXIT_SYSTEM, "%s %s: found %s: allowed: a port that is not taken", call, host, ports);
    }
    if (error == EACCES && range.last) {
        fail_hint(failure, "lower ones are for processes with CAP_NET_BIND_SERVICE (root has it)");
        return fail(failure, EXIT_USAGE, "%s %s: found %s: allowed: %u and more", call, host, ports, port_first_free());
    }
    errno = error;
    return fail_system(failure, "%s %s, %s", call, host, ports);
}

bool socket_bind_range(int descriptor, bool listening, struct address *address, struct port_range range,
                       struct failure *failure)
{
    int one = 1;
    if (listening && setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
        return fail_system(failure, "SO_REUSEADDR");
    for (unsigned port = range.first; port <= range.last; port++) {
        address_set_port(address, port);
        if (bind(descriptor, (struct sockaddr *)&address->storage, address->length) == 0 &&
            (!listening || listen(descriptor, 1024) == 0))
            return address_of_socket(descriptor, address) || fail_system(failure, "getsockname");
        if (errno != EADDRINUSE && errno != EACCES)
            break;
    }
    return bind_refused(listening ? "listen on" : "bind to", address, range, failure);
}

bool socket_wait(int descriptor, short events, uint64_t deadline_ns, const char *what, struct failure *failure)
{
    for (;;) {
        struct pollfd poller = {.fd = descriptor, .events = events};
        if (signals_stop())
            return fail(failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
        int ms = clock_remaining_ms(deadline_ns);
        int rc = poll(&poller, 1, ms > 1000 ? 1000 : ms); /* a second at most: a signal may come just before poll */
        if (rc > 0)
            return true;
        if (rc < 0 && errno != EINTR)
            return fail_system(failure, "poll");
        if (ms == 0)
            return fail(failure, EXIT_PEER, "timed out: %s", what);
    }
}

bool connect_refused(const struct address *to, int error, struct failure *failure)
{
    char host[ADDRESS_TEXT_BYTES];
    address_text(to, host);
    if (error == EINVAL && address_needs_scope(to)) {
        scope_hint(to, "--to", failure);
        return fail(failure, EXIT_USAGE, "to: found %s: allowed: a link-local address with its interface", host);
    }
    if (error == ECONNREFUSED)
        fail_hint(failure, "nobody listens at this port: does the server still run, and is this the port it printed?");
    if (error == ENETUNREACH || error == EHOSTUNREACH)
        fail_hint(failure, "`ip route get %s` shows which way this node takes", host);
    return fail(failure, EXIT_PEER, "connect to %s port %u: %s (%s)", host, address_port(to), strerror(error),
                fail_errno_name(error));
}

bool socket_connect(int descriptor, const struct address *to, uint64_t deadline_ns, struct failure *failure)
{
    int flags = fcntl(descriptor, F_GETFL), error = 0;
    socklen_t length = sizeof error;
    if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_NONBLOCK))
        return fail_system(failure, "fcntl");
    if (connect(descriptor, (const struct sockaddr *)&to->storage, to->length) && errno != EINPROGRESS)
        error = errno;
    else if (!socket_wait(descriptor, POLLOUT, deadline_ns, "no answer to connect", failure))
        return fail_hint(
            failure,
            "on the way something drops it: a firewall (`server --ports` names the ports it must let through), or "
            "the way is wrong (`ip route get`)");
    else if (getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length))
        return fail_system(failure, "SO_ERROR");
    if (error)
        return connect_refused(to, error, failure);
    return fcntl(descriptor, F_SETFL, flags) == 0 || fail_system(failure, "fcntl");
}
