/* Facts: the way from here over the interface under test, and who answers there. */
#include "facts/facts.h"

#include "base/fail.h"
#include "evidence/netlink.h"
#include "evidence/sources.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Routes over the interface under test, as /proc/net/route has them: hexadecimal in the host's byte order. */
static void routes_4(struct facts *facts)
{
    struct text text = {0};
    struct word line, words[8];
    int error = source_read_file(facts->root, "proc/net/route", &text);
    if (error)
        facts_unavailable(facts, "route", fail_errno_name(error));
    const char *at = text_string(&text);
    while (line_next(&at, &line)) {
        size_t count = 0;
        while (count < 8 && word_next(&line, &words[count]))
            count++;
        if (count < 8 || !facts->interface[0] || !word_is(words[0], facts->interface))
            continue;
        char destination[INET_ADDRSTRLEN], gateway[INET_ADDRSTRLEN];
        struct in_addr to = {.s_addr = (in_addr_t)strtoul(words[1].at, NULL, 16)},
                       by = {.s_addr = (in_addr_t)strtoul(words[2].at, NULL, 16)};
        int prefix = __builtin_popcountl(strtoul(words[7].at, NULL, 16));
        inet_ntop(AF_INET, &to, destination, sizeof destination);
        inet_ntop(AF_INET, &by, gateway, sizeof gateway);
        fact_text(facts, by.s_addr ? gateway : "link", "%s.%s/%d", facts->interface, destination, prefix);
    }
    text_free(&text);
}

/* Who answers on the link under test: the neighbours that the kernel knows there, as /proc/net/arp has them. They come
 * and go with traffic, so they belong to the moment. */
static void neighbours_4(struct facts *facts)
{
    struct text text = {0};
    struct word line, words[32]; /* a hardware address falls apart at its colons; InfiniBand's has twenty parts */
    int error = source_read_file(facts->root, "proc/net/arp", &text);
    if (error)
        facts_unavailable(facts, "neighbour", fail_errno_name(error));
    const char *at = text_string(&text);
    while (line_next(&at, &line)) {
        size_t count = 0;
        while (count < 32 && word_next(&line, &words[count]))
            count++;
        if (count < 6 || !facts->interface[0] || !word_is(words[count - 1], facts->interface) ||
            word_is(words[2], "0x0"))
            continue;
        char link_address[72];
        snprintf(link_address, sizeof link_address, "%.*s", (int)strcspn(words[3].at, " \t"), words[3].at);
        fact_text(facts, link_address, "neighbour.%.*s", (int)words[0].length, words[0].at);
    }
    text_free(&text);
}

/* 32 hexadecimal digits, as /proc/net/ipv6_route writes an address. */
static bool address_6(struct word word, struct in6_addr *address)
{
    if (word.length != 2 * sizeof address->s6_addr)
        return false;
    for (size_t i = 0; i < sizeof address->s6_addr; i++) {
        char pair[3] = {word.at[2 * i], word.at[2 * i + 1], 0};
        address->s6_addr[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

/* The same for IPv6: destination, prefix, source, prefix, gateway, metric, two counts, flags, interface. Addresses of
 * our own, multicast and what the kernel learned for the moment are no routes that somebody set. */
static void routes_6(struct facts *facts)
{
    enum { WORDS = 10, FLAG_UP = 0x1, FLAG_CACHED = 0x01000000 };
    const unsigned long FLAG_LOCAL = 0x80000000;
    struct text text = {0};
    struct word line, words[WORDS];
    if (source_read_file(facts->root, "proc/net/ipv6_route", &text)) /* a kernel without IPv6 */
        return;
    const char *at = text_string(&text);
    while (line_next(&at, &line)) {
        struct in6_addr to, by;
        char destination[INET6_ADDRSTRLEN], gateway[INET6_ADDRSTRLEN];
        static const struct in6_addr nowhere;
        size_t count = 0;
        while (count < WORDS && word_next(&line, &words[count]))
            count++;
        if (count < WORDS || !facts->interface[0] || !word_is(words[9], facts->interface) ||
            !address_6(words[0], &to) || !address_6(words[4], &by))
            continue;
        unsigned long flags = strtoul(words[8].at, NULL, 16);
        if (!(flags & FLAG_UP) || (flags & (FLAG_LOCAL | FLAG_CACHED)) || to.s6_addr[0] == 0xff)
            continue;
        inet_ntop(AF_INET6, &to, destination, sizeof destination);
        inet_ntop(AF_INET6, &by, gateway, sizeof gateway);
        fact_text(facts, memcmp(&by, &nowhere, sizeof by) ? gateway : "link", "%s.%s/%lu", facts->interface,
                  destination, strtoul(words[1].at, NULL, 16));
    }
    text_free(&text);
}

void facts_route(struct facts *facts)
{
    routes_4(facts);
    routes_6(facts);
}

struct neighbours {
    struct facts *facts;
    int index;
};

static void neighbour_take(void *argument, const void *entry, size_t length)
{
    const struct neighbours *neighbours = argument;
    struct ndmsg head;
    size_t skip = NLMSG_ALIGN(sizeof head), size = 0, link_bytes = 0;
    char address[INET6_ADDRSTRLEN];
    if (length < skip)
        return;
    memcpy(&head, entry, sizeof head);
    if (head.ndm_ifindex != neighbours->index || head.ndm_state & (NUD_NOARP | NUD_FAILED | NUD_INCOMPLETE))
        return;
    const char *attributes = (const char *)entry + skip;
    const void *to = netlink_attribute(attributes, length - skip, NDA_DST, &size);
    const uint8_t *link = netlink_attribute(attributes, length - skip, NDA_LLADDR, &link_bytes);
    struct text text = {0};
    if (!to || size != sizeof(struct in6_addr) || !link || !inet_ntop(AF_INET6, to, address, sizeof address))
        return;
    for (size_t i = 0; i < link_bytes; i++)
        text_print(&text, "%s%02x", i ? ":" : "", link[i]);
    fact_text(neighbours->facts, text_string(&text), "neighbour.%s", address);
    text_free(&text);
}

/* There is no file of them. */
static void neighbours_6(struct facts *facts)
{
    struct neighbours neighbours = {facts, (int)(facts->interface[0] ? if_nametoindex(facts->interface) : 0)};
    struct ndmsg body = {.ndm_family = AF_INET6, .ndm_ifindex = neighbours.index};
    if (facts->root[0] || !neighbours.index)
        return;
    int error = netlink_dump(RTM_GETNEIGH, &body, sizeof body, neighbour_take, &neighbours);
    if (error && error != EIO) /* a kernel without IPv6 refuses the question */
        facts_unavailable(facts, "neighbour6", fail_errno_name(error));
}

void facts_neighbour(struct facts *facts)
{
    neighbours_4(facts);
    neighbours_6(facts);
}
