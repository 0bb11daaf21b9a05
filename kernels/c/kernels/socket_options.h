/* Socket options: one row each. From a row come the field, the flag, the help, the range check, the wire form, the
 * echo, the description, setsockopt() before or after connect (again on an accepted connection), and what the system
 * granted, read back at the end. A new socket option is one row here, and its name in the table of docs/kernels.md by
 * `make docs`.
 *
 *   ROW(struct type, field, OPTION_kind, minimum, maximum, IPv4 level, option, IPv6 level, option, when, scale, grant,
 * help)
 *
 * 0, false or "system" leave it to the system, unless the row's `when` says ALWAYS. The system gets value * scale. */
#ifndef HPCQ_SOCKET_OPTIONS_H
#define HPCQ_SOCKET_OPTIONS_H

#include "engine/run.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* Buffers decide the window scale and MSS goes into the SYN: before connect. */
enum socket_moment { SOCKET_BEFORE, SOCKET_AFTER };

enum socket_grant {
    GRANT_PLAIN,   /* the number that getsockopt() tells, over the scale */
    GRANT_BUFFER,  /* socket(7): the system doubles what is asked for, and tells the doubled number */
    GRANT_AT_MOST, /* the system may take off some: the MSS less TCP's options */
    GRANT_RATE,    /* bits per second; the system has bytes per second, of 64 bits */
    GRANT_TEXT
};

#define SOCKET_ROWS_ANY(ROW, type)                                                                                     \
    ROW(type, send_buffer_bytes, OPTION_INTEGER, 0, 1073741824, SOL_SOCKET, SO_SNDBUF, SOL_SOCKET, SO_SNDBUF,          \
        SOCKET_BEFORE, 1, GRANT_BUFFER, "SO_SNDBUF of both ends; 0: the system's")                                     \
    ROW(type, receive_buffer_bytes, OPTION_INTEGER, 0, 1073741824, SOL_SOCKET, SO_RCVBUF, SOL_SOCKET, SO_RCVBUF,       \
        SOCKET_BEFORE, 1, GRANT_BUFFER, "SO_RCVBUF of both ends; 0: the system's")                                     \
    ROW(type, dscp, OPTION_INTEGER, 0, 63, IPPROTO_IP, IP_TOS, IPPROTO_IPV6, IPV6_TCLASS, SOCKET_BEFORE, 4,            \
        GRANT_PLAIN, "DSCP of what both ends send (RFC 2474): 46 is EF, 10 AF11; 0: best effort")                      \
    ROW(type, hop_limit_count, OPTION_INTEGER, 0, 255, IPPROTO_IP, IP_TTL, IPPROTO_IPV6, IPV6_UNICAST_HOPS,            \
        SOCKET_BEFORE, 1, GRANT_PLAIN, "TTL (IPv6: hop limit) of what both ends send; 0: the system's")                \
    ROW(type, busy_poll_us, OPTION_INTEGER, 0, 1000000, SOL_SOCKET, SO_BUSY_POLL, SOL_SOCKET, SO_BUSY_POLL,            \
        SOCKET_BEFORE, 1, GRANT_PLAIN,                                                                                 \
        "SO_BUSY_POLL of both ends: a receive polls the device this long before it sleeps (needs CAP_NET_ADMIN)")      \
    ROW(type, bind_device, OPTION_NAME, 0, 15, SOL_SOCKET, SO_BINDTODEVICE, SOL_SOCKET, SO_BINDTODEVICE,               \
        SOCKET_BEFORE, 1, GRANT_TEXT,                                                                                  \
        "SO_BINDTODEVICE of both ends: their packets leave and come by this interface alone; system: by any")

#define SOCKET_ROWS_TCP(ROW, type)                                                                                     \
    ROW(type, mss_bytes, OPTION_INTEGER, 0, 32767, IPPROTO_TCP, TCP_MAXSEG, IPPROTO_TCP, TCP_MAXSEG, SOCKET_BEFORE, 1, \
        GRANT_AT_MOST, "TCP_MAXSEG of both ends; 0: the path's")                                                       \
    ROW(type, no_delay, OPTION_BOOLEAN, 0, 1, IPPROTO_TCP, TCP_NODELAY, IPPROTO_TCP, TCP_NODELAY, SOCKET_AFTER, 1,     \
        GRANT_PLAIN, "TCP_NODELAY of both ends: small segments are not held back")                                     \
    ROW(type, tcp_cork, OPTION_BOOLEAN, 0, 1, IPPROTO_TCP, TCP_CORK, IPPROTO_TCP, TCP_CORK, SOCKET_AFTER, 1,           \
        GRANT_PLAIN, "TCP_CORK of both ends: only full segments are sent, smaller ones after 200 ms")                  \
    ROW(type, not_sent_low_water_bytes, OPTION_INTEGER, 0, 1073741824, IPPROTO_TCP, TCP_NOTSENT_LOWAT, IPPROTO_TCP,    \
        TCP_NOTSENT_LOWAT, SOCKET_AFTER, 1, GRANT_PLAIN,                                                               \
        "TCP_NOTSENT_LOWAT of both ends: what is not sent yet stays below this; 0: the system's")                      \
    ROW(type, pacing_rate_bps, OPTION_INTEGER, 0, 1000000000000, SOL_SOCKET, SO_MAX_PACING_RATE, SOL_SOCKET,           \
        SO_MAX_PACING_RATE, SOCKET_BEFORE, 1, GRANT_RATE,                                                              \
        "SO_MAX_PACING_RATE of both ends: they send no faster than this, packet by packet; 0: the system's")           \
    ROW(type, congestion_control, OPTION_NAME, 0, 15, IPPROTO_TCP, TCP_CONGESTION, IPPROTO_TCP, TCP_CONGESTION,        \
        SOCKET_BEFORE, 1, GRANT_TEXT, "TCP_CONGESTION of both ends, any that both nodes have; system: their default")

#define SOCKET_ROWS_UDP(ROW, type)                                                                                     \
    ROW(type, do_not_fragment, OPTION_BOOLEAN, 0, 1, IPPROTO_IP, IP_MTU_DISCOVER, IPPROTO_IPV6, IPV6_MTU_DISCOVER,     \
        SOCKET_BEFORE, 2, GRANT_PLAIN,                                                                                 \
        "DF of both ends: a datagram larger than the path's MTU is an error (EMSGSIZE)")

#define SOCKET_FIELD_OPTION_INTEGER(field) int64_t field;
#define SOCKET_FIELD_OPTION_BOOLEAN(field) int64_t field;
#define SOCKET_FIELD_OPTION_NAME(field) char field[OPTION_NAME_BYTES];
#define SOCKET_FIELD(type, field, kind, ...) SOCKET_FIELD_##kind(field)

/* Begins right behind common_options in the options of every kernel that has sockets. */
struct socket_settings {
    SOCKET_ROWS_ANY(SOCKET_FIELD, )
    SOCKET_ROWS_TCP(SOCKET_FIELD, )
    SOCKET_ROWS_UDP(SOCKET_FIELD, )
    int64_t source_port_first_no, source_port_last_no, mptcp;
    char client_bind_device[OPTION_NAME_BYTES], server_bind_device[OPTION_NAME_BYTES];
};

#define SOCKET_OPTION_ROW(type, field, kind, minimum, maximum, l4, o4, l6, o6, moment, scale, grant, help)             \
    {#field, kind, offsetof(type, sockets.field), 0, minimum, maximum, NULL, help},
#define SOURCE_ROW(type, field, help) {#field, OPTION_INTEGER, offsetof(type, sockets.field), 0, 0, 65535, NULL, help}
#define DEVICE_ROW(type, field, help) {#field, OPTION_NAME, offsetof(type, sockets.field), 0, 0, 15, NULL, help}
/* What the client's are bound to, which is no option of a socket, and devices where the ends' names differ. */
#define OPTION_ROWS_SOURCE(type)                                                                                       \
    SOURCE_ROW(type, source_port_first_no,                                                                             \
               "the client's flows have this local port and the next ones (many networks choose a path by it); 0: "    \
               "any"),                                                                                                 \
        SOURCE_ROW(type, source_port_last_no,                                                                          \
                   "up to this one, ports that are taken are passed over; 0: none may be taken"),                      \
        DEVICE_ROW(type, client_bind_device, "bind_device of the client alone; system: as bind_device says"),          \
        DEVICE_ROW(type, server_bind_device, "bind_device of the server alone; system: as bind_device says"),

/* Of the socket from the start, and no option of it later. */
#define OPTION_ROW_MPTCP(type)                                                                                         \
    {"mptcp",                                                                                                          \
     OPTION_BOOLEAN,                                                                                                   \
     offsetof(type, sockets.mptcp),                                                                                    \
     0,                                                                                                                \
     0,                                                                                                                \
     1,                                                                                                                \
     NULL,                                                                                                             \
     "Multipath TCP (RFC 8684) between both ends, which goes over as many paths as the nodes' `ip mptcp` says; where " \
     "a node or the network has none, plain TCP"},

#define RELATIONS_SOURCE                                                                                               \
    {"source_port_last_no", RELATION_ONE_OF, .words = "0", .when = "source_port_first_no", .when_words = "0"},         \
        {"source_port_last_no", RELATION_AT_LEAST, .other = "source_port_first_no"}
/* What Linux takes (TCP_MIN_MSS); the row has the most (MAX_TCP_WINDOW). */
#define RELATION_MSS {"mss_bytes", RELATION_AT_LEAST, .factor = 88}
#define RELATION_FLOWS                                                                                                 \
    {"flow_count", RELATION_COUNT_OF_PORTS, .other = "source_port_first_no", .last = "source_port_last_no"}

/* The rows of a kernel's option table, each with its comma. */
#define OPTION_ROWS_TCP(type)                                                                                          \
    OPTION_ROW_IDLE(type), SOCKET_ROWS_ANY(SOCKET_OPTION_ROW, type) SOCKET_ROWS_TCP(SOCKET_OPTION_ROW, type)           \
                               OPTION_ROWS_SOURCE(type) OPTION_ROW_MPTCP(type)
#define OPTION_ROWS_UDP(type)                                                                                          \
    OPTION_ROW_IDLE(type),                                                                                             \
        SOCKET_ROWS_ANY(SOCKET_OPTION_ROW, type) SOCKET_ROWS_UDP(SOCKET_OPTION_ROW, type) OPTION_ROWS_SOURCE(type)

/* Sets what this moment is for; kind: SOCK_STREAM or SOCK_DGRAM. */
bool socket_options_apply(struct run *run, int descriptor, const struct socket_settings *settings, int kind,
                          enum socket_moment moment);
/* The peer was not reached: where an end is bound to a device, the failure names it too. Returns false. */
bool socket_unreached(struct run *run, const struct socket_settings *settings);
/* A socket of TCP, or of Multipath TCP where the options and the system have it; -1 with a failure. */
int socket_tcp_new(struct run *run, const struct address *address, const struct socket_settings *settings);
bool socket_is_mptcp(int descriptor);
/* At the end of the measurement: what the system granted into run->granted, and a warning where it is less than asked.
 */
void socket_options_granted(struct run *run, int descriptor, const struct socket_settings *settings, int kind);

#endif
