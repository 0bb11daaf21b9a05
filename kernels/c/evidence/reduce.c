/* See reduce.h. */
#include "evidence/reduce.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAMILY_BYTES = 128 };

struct member {
    char family[FAMILY_BYTES]; /* the name without its numbers: what is told many times */
    uint64_t value;
    size_t index;
};

static bool ends_with(const char *name, const char *end)
{
    size_t a = strlen(name), b = strlen(end);
    return a >= b && !strcmp(name + a - b, end);
}

/* The sum over CPUs, of use only where the CPUs themselves are not all kept. */
static bool is_sum(const char *name)
{
    return ends_with(name, ".total") && (!strncmp(name, "interrupts.", 11) || !strncmp(name, "softirqs.", 9));
}

static bool is_always_kept(const char *name, const char *interface)
{
    char middle[40];
    const char *dot = strchr(name, '.');
    snprintf(middle, sizeof middle, ".%.32s.", interface);
    bool by_interface = !strncmp(name, "net_dev.", 8) || !strncmp(name, "sys_net.", 8) || !strncmp(name, "qdisc.", 6);
    return by_interface && interface[0] && dot && !strncmp(dot, middle, strlen(middle));
}

static void family_name(const char *name, char family[FAMILY_BYTES])
{
    size_t length = 0;
    if (!strncmp(name, "interrupts.", 11)) {
        snprintf(family, FAMILY_BYTES, is_sum(name) ? "interrupts.total" : "interrupts.cpu");
        return;
    }
    for (; *name && length < FAMILY_BYTES - 1; name++)
        if (!isdigit((unsigned char)*name))
            family[length++] = *name;
    family[length] = '\0';
}

/* Time that a core did nothing is not what one looks for. */
static bool is_idle_time(const char *name)
{
    return !strncmp(name, "stat.cpu", 8) && isdigit((unsigned char)name[8]) &&
           (ends_with(name, ".idle_ticks") || ends_with(name, ".iowait_ticks"));
}

static int member_compare(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = strcmp(x->family, y->family);
    return order ? order : (x->value < y->value) - (x->value > y->value);
}

static size_t keep_largest(struct member *members, size_t count, bool *keep)
{
    size_t kept = 0, place = 0;
    qsort(members, count, sizeof *members, member_compare);
    for (size_t i = 0; i < count; i++) {
        bool interrupts = !strncmp(members[i].family, "interrupts.", 11);
        place = i && !strcmp(members[i].family, members[i - 1].family) ? place + 1 : 0;
        keep[members[i].index] = place < (size_t)(interrupts ? REDUCE_INTERRUPT_MAX : REDUCE_FAMILY_MAX);
        kept += keep[members[i].index];
    }
    return kept;
}

size_t reduce_select(const struct counters *differences, const char *interface, bool *keep)
{
    size_t kept = 0, member_count = 0;
    for (size_t i = 0; i < differences->count; i++) {
        keep[i] = !is_sum(counters_name(differences, i));
        kept += keep[i];
    }
    if (kept <= REDUCE_COUNT_MAX)
        return kept;
    struct member *members = memory_new(differences->count, sizeof *members);
    kept = 0;
    for (size_t i = 0; i < differences->count; i++) {
        const char *name = counters_name(differences, i);
        struct member *member = &members[member_count];
        family_name(name, member->family);
        keep[i] = is_always_kept(name, interface) || (!strcmp(member->family, name) && !is_sum(name));
        kept += keep[i];
        if (keep[i] || is_idle_time(name))
            continue;
        member->value = differences->list[i].value;
        member->index = i;
        member_count++;
    }
    kept += keep_largest(members, member_count, keep);
    free(members);
    return kept;
}
