/* Addresses and sockets: the address of a named interface, listening in a port range, connecting by a deadline. */
#ifndef HPCQ_ADDRESS_H
#define HPCQ_ADDRESS_H

#include "base/fail.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

enum { ADDRESS_TEXT_BYTES = 80 };

enum { ADDRESSES_MAX = 8 };

struct address {
    struct sockaddr_storage storage;
    socklen_t length;
};

struct port_range {
    unsigned first, last; /* 0, 0: any port */
};

/* What --bind says: a name or a number. */
bool address_parse(const char *text, int family, struct address *out, struct failure *failure);
/* All addresses of a name, in the order in which the system would have them tried; returns how many, 0 with a failure.
 */
size_t addresses_parse(const char *text, struct address out[ADDRESSES_MAX], struct failure *failure);
/* Tries them one after another, each for its share of the time, until one is reached; else the failure is that of the
 * first, which the system prefers. `reach` leaves nothing open that it did not reach. */
bool addresses_reach(const char *text, unsigned port, uint64_t deadline_ns,
                     bool (*reach)(void *context, const struct address *to, uint64_t deadline_ns,
                                   struct failure *failure),
                     void *context, struct failure *failure);
/* First address of an interface; family AF_UNSPEC takes IPv4 before global IPv6 before link-local IPv6. */
bool address_of_interface(const char *interface, int family, struct address *out, struct failure *failure);
/* Name of the interface that owns this address; "" when none does. */
void address_interface(const struct address *address, char out[IF_NAMESIZE]);
void address_text(const struct address *address, char out[ADDRESS_TEXT_BYTES]);
bool address_same(const struct address *a, const struct address *b); /* the same host, whatever the port */
unsigned address_port(const struct address *address);
/* All addresses of this host, of the same family and with the same port. */
void address_any(struct address *address);
void address_set_port(struct address *address, unsigned port);
bool address_of_socket(int descriptor, struct address *out);

int socket_new(const struct address *address, int type, struct failure *failure); /* close-on-exec; -1 on failure */
/* Binds to the first free port of the range (0-0: any) and, when asked, listens. */
bool socket_bind_range(int descriptor, bool listening, struct address *address, struct port_range range,
                       struct failure *failure);
/* Why `to` was not reached, and what to look at. */
bool connect_refused(const struct address *to, int error, struct failure *failure);
bool socket_connect(int descriptor, const struct address *to, uint64_t deadline_ns, struct failure *failure);
bool socket_wait(int descriptor, short events, uint64_t deadline_ns, const char *what, struct failure *failure);

#endif
