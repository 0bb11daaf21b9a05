/* Small reads below a root: one line, one number, the names in a directory. "" as root is the live node. */
#ifndef HPCQ_SYSFS_H
#define HPCQ_SYSFS_H

#include "base/text.h"

enum { SYSFS_LINE_BYTES = 512 };

/* First line without its end; false when it cannot be read. Path as for printf. */
bool sysfs_line(const char *root, char line[SYSFS_LINE_BYTES], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool sysfs_number(const char *root, uint64_t *value, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool sysfs_exists(const char *root, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Last part of a symbolic link's target; false when it is none. */
bool sysfs_link(const char *root, char name[SYSFS_LINE_BYTES], const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct names {
    char **list; /* sorted, numbers by value */
    size_t count;
};
struct names sysfs_list(const char *root, const char *format, ...) __attribute__((format(printf, 2, 3)));
void names_add(struct names *names, const char *name);
void names_free(struct names *names);

/* The interface and the devices it stands on (bond slaves, the parent of a VLAN). */
struct names sysfs_lower_interfaces(const char *root, const char *interface);
/* Numbers of its message-signalled interrupts. */
struct names sysfs_interrupts(const char *root, const char *interface);
/* The RDMA port behind an interface, or behind the first device it stands on that has one, as `device.port`; false when
 * it has none. */
bool sysfs_rdma_port(const char *root, const char *interface, struct text *port);

#endif
