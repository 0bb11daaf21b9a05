/* See netlink.h. */
#include "evidence/netlink.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { ANSWER_BYTES = 32768, BODY_BYTES_MAX = 64 };

struct taker {
    void (*take)(void *argument, const void *entry, size_t length);
    void *argument;
};

const void *netlink_attribute(const void *from, size_t length, unsigned short type, size_t *size)
{
    const char *at = from;
    while (length >= sizeof(struct rtattr)) {
        struct rtattr head;
        memcpy(&head, at, sizeof head);
        if (head.rta_len < sizeof head || head.rta_len > length)
            return NULL;
        if ((head.rta_type & 0x3fff) == type) { /* without NLA_F_NESTED and NLA_F_NET_BYTEORDER */
            *size = head.rta_len - RTA_LENGTH(0);
            return at + RTA_LENGTH(0);
        }
        size_t step = RTA_ALIGN(head.rta_len);
        if (step > length)
            return NULL;
        at += step;
        length -= step;
    }
    return NULL;
}

/* One datagram of the answer. True when the list is at its end. */
static bool answer_take(const struct taker *taker, const char *answer, size_t length, int *error)
{
    for (size_t at = 0; at + sizeof(struct nlmsghdr) <= length;) {
        struct nlmsghdr head;
        memcpy(&head, answer + at, sizeof head);
        if (head.nlmsg_len < sizeof head || head.nlmsg_len > length - at)
            return true;
        if (head.nlmsg_type == NLMSG_DONE)
            return true;
        if (head.nlmsg_type == NLMSG_ERROR) {
            *error = EIO;
            return true;
        }
        taker->take(taker->argument, answer + at + NLMSG_HDRLEN, head.nlmsg_len - NLMSG_HDRLEN);
        at += NLMSG_ALIGN(head.nlmsg_len);
    }
    return false;
}

static int dump_receive(int descriptor, const struct taker *taker)
{
    _Alignas(8) char answer[ANSWER_BYTES];
    int error = 0;
    for (;;) {
        ssize_t got = recv(descriptor, answer, sizeof answer, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? errno : EIO;
        if (answer_take(taker, answer, (size_t)got, &error))
            return error;
    }
}

int netlink_dump(int request_type, const void *body, size_t body_bytes,
                 void (*take)(void *argument, const void *entry, size_t length), void *argument)
{
    struct {
        struct nlmsghdr head;
        char body[BODY_BYTES_MAX];
    } request = {.head = {.nlmsg_len = (uint32_t)NLMSG_LENGTH(body_bytes),
                          .nlmsg_type = (uint16_t)request_type,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
    struct timeval limit = {.tv_sec = 1, .tv_usec = 0};
    struct taker taker = {take, argument};
    if (body_bytes > sizeof request.body)
        return EMSGSIZE;
    memcpy(request.body, body, body_bytes);
    int descriptor = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (descriptor < 0)
        return errno;
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int error = send(descriptor, &request, request.head.nlmsg_len, 0) < 0 ? errno : dump_receive(descriptor, &taker);
    close(descriptor);
    return error;
}
