/* See packets.h. */
#include "kernels/packets.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEGMENT_OPTION = 103, /* UDP_SEGMENT, include/uapi/linux/udp.h; older headers lack the name */
    GRO_OPTION = 104,     /* UDP_GRO */
    MERGED_BYTES = 65536, /* the most that one message can bring */
    CONTROL_BYTES = 64    /* a time stamp and a size, each with its head */
};

void packets_new(struct run *run, struct packets *packets, const struct packet_settings *settings,
                 size_t datagram_bytes)
{
    size_t segments = (size_t)settings->gso_segment_count, fitting = DATAGRAM_BYTES_MAX / datagram_bytes;
    size_t messages = (size_t)settings->call_message_count;
    *packets = (struct packets){.datagram_bytes = datagram_bytes, .message_count = messages};
    packets->segment_count = segments < fitting ? segments : fitting;
    /* One more byte than expected, so that a longer datagram shows. */
    packets->in_bytes = settings->gro ? MERGED_BYTES : datagram_bytes + 1;
    packets->out = run_noise(run, messages * packets->segment_count * datagram_bytes);
    packets->in = run_noise(run, messages * packets->in_bytes);
    packets->control = memory_new(messages, CONTROL_BYTES);
    packets->out_messages = memory_new(messages, sizeof *packets->out_messages);
    packets->in_messages = memory_new(messages, sizeof *packets->in_messages);
    packets->out_parts = memory_new(messages, sizeof *packets->out_parts);
    packets->in_parts = memory_new(messages, sizeof *packets->in_parts);
    for (size_t i = 0; i < messages; i++) {
        packets->out_parts[i].iov_base = packets->out + i * packets->segment_count * datagram_bytes;
        packets->out_messages[i].msg_hdr = (struct msghdr){.msg_iov = &packets->out_parts[i], .msg_iovlen = 1};
        packets->in_parts[i] =
            (struct iovec){.iov_base = packets->in + i * packets->in_bytes, .iov_len = packets->in_bytes};
    }
}

void packets_free(struct packets *packets)
{
    free(packets->control);
    free(packets->out_messages);
    free(packets->in_messages);
    free(packets->out_parts);
    free(packets->in_parts);
}

static bool segment_set(struct run *run, const struct packets *packets, int descriptor)
{
    int bytes = (int)packets->datagram_bytes;
    if (packets->segment_count < 2 || !run_sends(run) ||
        !setsockopt(descriptor, IPPROTO_UDP, SEGMENT_OPTION, &bytes, sizeof bytes))
        return true;
    return fail_system(&run->failure, "gso_segment_count: UDP_SEGMENT (Linux 4.18)");
}

static void segment_granted(struct run *run, const struct packets *packets, int asked, int descriptor)
{
    int bytes = 0;
    socklen_t length = sizeof bytes;
    bool set = !getsockopt(descriptor, IPPROTO_UDP, SEGMENT_OPTION, &bytes, &length) && bytes > 0;
    int granted = set ? (int)packets->segment_count : 1;
    run_grant_number(run, "gso_segment_count", granted);
    if (granted < asked)
        run_warn(run, "option_not_granted", "gso_segment_count: asked for %d, granted %d: %zu bytes each", asked,
                 granted, packets->datagram_bytes);
}

bool packets_socket(struct run *run, struct packets *packets, const struct packet_settings *settings, int descriptor,
                    bool first)
{
    int one = 1;
    if (!segment_set(run, packets, descriptor))
        return false;
    if (settings->gro && run_receives(run)) {
        if (setsockopt(descriptor, IPPROTO_UDP, GRO_OPTION, &one, sizeof one))
            return fail_system(&run->failure, "gro: UDP_GRO (Linux 5.0)");
        packets->merged = true;
    }
    if (first && run_sends(run))
        segment_granted(run, packets, (int)settings->gso_segment_count, descriptor);
    return true;
}

size_t packets_room(const struct packets *packets)
{
    return packets->message_count * packets->segment_count;
}

uint8_t *packets_at(struct packets *packets, size_t index)
{
    return packets->out + index * packets->datagram_bytes;
}

/* What a message of these bytes has: the last may be cut short. */
static size_t message_bytes(const struct packets *packets, size_t first, size_t count)
{
    size_t here = count - first < packets->segment_count ? count - first : packets->segment_count;
    return here * packets->datagram_bytes;
}

ssize_t packets_send(struct packets *packets, int descriptor, size_t count, int flags)
{
    if (packets->message_count == 1) {
        ssize_t sent = send(descriptor, packets->out, message_bytes(packets, 0, count), flags | MSG_NOSIGNAL);
        return sent < 0 ? sent : sent / (ssize_t)packets->datagram_bytes;
    }
    unsigned messages = 0;
    for (size_t first = 0; first < count; first += packets->segment_count)
        packets->out_parts[messages++].iov_len = message_bytes(packets, first, count);
    int sent = sendmmsg(descriptor, packets->out_messages, messages, flags | MSG_NOSIGNAL);
    size_t datagrams = sent < 0 ? 0 : (size_t)sent * packets->segment_count;
    return sent < 0 ? sent : (ssize_t)(datagrams < count ? datagrams : count);
}

ssize_t packets_receive(struct run *run, struct packets *packets, int descriptor, int flags)
{
    ssize_t got;
    for (size_t i = 0; i < packets->message_count; i++)
        packets->in_messages[i].msg_hdr = (struct msghdr){.msg_iov = &packets->in_parts[i],
                                                          .msg_iovlen = 1,
                                                          .msg_control = packets->control + i * CONTROL_BYTES,
                                                          .msg_controllen = CONTROL_BYTES};
    if (packets->message_count == 1) {
        got = recvmsg(descriptor, &packets->in_messages[0].msg_hdr, flags);
        packets->in_messages[0].msg_len = got < 0 ? 0 : (unsigned)got;
        got = got < 0 ? got : 1;
    } else {
        got =
            recvmmsg(descriptor, packets->in_messages, (unsigned)packets->message_count, flags | MSG_WAITFORONE, NULL);
    }
    int error = errno;
    run->call_count++;
    run->now_ns = clock_now_ns();
    packets->in_count = got < 0 ? 0 : (size_t)got;
    errno = error;
    return got;
}

/* The size of each datagram in a merged message, as the control data says. */
static size_t segment_bytes(struct msghdr *message, size_t whole)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        int bytes = 0;
        if (head->cmsg_level != IPPROTO_UDP || head->cmsg_type != GRO_OPTION)
            continue;
        memcpy(&bytes, CMSG_DATA(head), sizeof bytes);
        return bytes > 0 && (size_t)bytes < whole ? (size_t)bytes : whole;
    }
    return whole;
}

bool packets_each(struct packets *packets, struct arrivals *arrivals, uint64_t now_ns, struct packet_cursor *cursor,
                  struct packet *packet)
{
    if (cursor->message >= packets->in_count)
        return false;
    struct mmsghdr *message = &packets->in_messages[cursor->message];
    if (!cursor->offset) {
        cursor->stamp_ns = arrivals_stamp(arrivals, &message->msg_hdr, now_ns);
        cursor->segment = packets->merged ? segment_bytes(&message->msg_hdr, message->msg_len) : message->msg_len;
    }
    size_t rest = message->msg_len - cursor->offset;
    packet->bytes = cursor->segment && cursor->segment < rest ? cursor->segment : rest;
    packet->data = packets->in + cursor->message * packets->in_bytes + cursor->offset;
    packet->stamp_ns = cursor->stamp_ns;
    cursor->offset += packet->bytes;
    if (cursor->offset >= message->msg_len) {
        cursor->message++;
        cursor->offset = 0;
    }
    return true;
}
