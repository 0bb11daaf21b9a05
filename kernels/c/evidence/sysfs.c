/* See sysfs.h. */
#include "evidence/sysfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024 };

__attribute__((format(printf, 3, 0))) static void path_make(char path[PATH_BYTES], const char *root, const char *format,
                                                            va_list arguments)
{
    int length = snprintf(path, PATH_BYTES, "%s/", root);
    if (length > 0 && length < PATH_BYTES)
        vsnprintf(path + length, (size_t)(PATH_BYTES - length), format, arguments);
}

static bool line_read(const char *path, char line[SYSFS_LINE_BYTES])
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return false;
    ssize_t got = read(descriptor, line, SYSFS_LINE_BYTES - 1);
    close(descriptor);
    line[got > 0 ? got : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    for (size_t length = strlen(line); length && (line[length - 1] == ' ' || line[length - 1] == '\t');)
        line[--length] = '\0';
    return got >= 0;
}

bool sysfs_line(const char *root, char line[SYSFS_LINE_BYTES], const char *format, ...)
{
    char path[PATH_BYTES];
    va_list arguments;
    va_start(arguments, format);
    path_make(path, root, format, arguments);
    va_end(arguments);
    return line_read(path, line);
}

bool sysfs_number(const char *root, uint64_t *value, const char *format, ...)
{
    char path[PATH_BYTES], line[SYSFS_LINE_BYTES], *end = NULL;
    va_list arguments;
    va_start(arguments, format);
    path_make(path, root, format, arguments);
    va_end(arguments);
    if (!line_read(path, line) || line[0] < '0' || line[0] > '9')
        return false;
    *value = strtoull(line, &end, 10);
    return *end == '\0';
}

bool sysfs_exists(const char *root, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list arguments;
    va_start(arguments, format);
    path_make(path, root, format, arguments);
    va_end(arguments);
    return access(path, F_OK) == 0;
}

bool sysfs_link(const char *root, char name[SYSFS_LINE_BYTES], const char *format, ...)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    va_list arguments;
    va_start(arguments, format);
    path_make(path, root, format, arguments);
    va_end(arguments);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(name, SYSFS_LINE_BYTES, "%.*s", SYSFS_LINE_BYTES - 1, slash ? slash + 1 : target);
    return true;
}

void names_add(struct names *names, const char *name)
{
    char **list = realloc(names->list, (names->count + 1) * sizeof *list), *copy = strdup(name);
    if (!list || !copy) {
        fputs("error: out of memory\n", stderr);
        exit(4);
    }
    list[names->count++] = copy;
    names->list = list;
}

void names_free(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
    *names = (struct names){0};
}

static int names_compare(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

struct names sysfs_list(const char *root, const char *format, ...)
{
    char path[PATH_BYTES];
    struct names names = {0};
    va_list arguments;
    va_start(arguments, format);
    path_make(path, root, format, arguments);
    va_end(arguments);
    DIR *directory = opendir(path);
    if (!directory)
        return names;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.')
            names_add(&names, entry->d_name);
    closedir(directory);
    if (names.count)
        qsort(names.list, names.count, sizeof *names.list, names_compare);
    return names;
}

struct names sysfs_lower_interfaces(const char *root, const char *interface)
{
    struct names names = {0};
    if (!interface[0])
        return names;
    names_add(&names, interface);
    struct names entries = sysfs_list(root, "sys/class/net/%s", interface);
    for (size_t i = 0; i < entries.count; i++)
        if (!strncmp(entries.list[i], "lower_", 6))
            names_add(&names, entries.list[i] + 6);
    names_free(&entries);
    return names;
}

static bool rdma_port_of(const char *root, const char *interface, struct text *port)
{
    uint64_t number = 0;
    bool found = false;
    struct names devices = sysfs_list(root, "sys/class/infiniband");
    for (size_t i = 0; interface[0] && !found && i < devices.count; i++) {
        if (!sysfs_exists(root, "sys/class/infiniband/%s/device/net/%s", devices.list[i], interface))
            continue;
        /* dev_port counts from 0, ports of RDMA devices from 1. */
        sysfs_number(root, &number, "sys/class/net/%s/dev_port", interface);
        if (!sysfs_exists(root, "sys/class/infiniband/%s/ports/%llu", devices.list[i], (unsigned long long)number + 1))
            number = 0;
        text_print(port, "%s.%llu", devices.list[i], (unsigned long long)number + 1);
        found = true;
    }
    names_free(&devices);
    return found;
}

bool sysfs_rdma_port(const char *root, const char *interface, struct text *port)
{
    struct names lower = sysfs_lower_interfaces(root, interface);
    bool found = false;
    for (size_t i = 0; !found && i < lower.count; i++)
        found = rdma_port_of(root, lower.list[i], port);
    names_free(&lower);
    return found;
}

struct names sysfs_interrupts(const char *root, const char *interface)
{
    struct names numbers = sysfs_list(root, "sys/class/net/%s/device/msi_irqs", interface);
    return numbers.count ? numbers /* virtio: one level down */
                         : sysfs_list(root, "sys/class/net/%s/device/../msi_irqs", interface);
}
