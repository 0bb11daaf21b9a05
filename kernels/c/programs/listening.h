/* Whether somebody listens on a port of this node: read from the tables of the system, so that nobody is connected to.
 */
#ifndef HPCQ_LISTENING_H
#define HPCQ_LISTENING_H

#include <stdbool.h>

/* A TCP socket that listens there, or a UDP socket that is bound there; IPv4 or IPv6, any address. */
bool listening(unsigned port);

#endif
