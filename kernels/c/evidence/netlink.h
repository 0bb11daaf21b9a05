/* Lists that the kernel keeps of its network: rtnetlink(7) dumps. */
#ifndef HPCQ_NETLINK_H
#define HPCQ_NETLINK_H

#include <stddef.h>

/* First attribute in [from, from + length) of this type, or NULL; *size is that of its content. */
const void *netlink_attribute(const void *from, size_t length, unsigned short type, size_t *size);

/* Asks for a list and hands out the body of each entry, attributes behind it. body: the request's own, of the type's
 * struct. Returns 0 or errno. */
int netlink_dump(int request_type, const void *body, size_t body_bytes,
                 void (*take)(void *argument, const void *entry, size_t length), void *argument);

#endif
