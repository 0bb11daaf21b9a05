/* Frames of the control channel. See control.h. */
#include "wire/control.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LENGTH_BYTES = 4 };

/* Packets that fit IPv6's least MTU, with all options of TCP: control messages get through where larger packets vanish,
 * as behind a switch port with a small MTU, and so the two ends can say which of their tests do not. */
enum { CONTROL_SEGMENT_BYTES = 1200 };

int control_socket(const struct address *address, struct failure *failure)
{
    int descriptor = socket_new(address, SOCK_STREAM, failure), segment_bytes = CONTROL_SEGMENT_BYTES;
    if (descriptor >= 0)
        setsockopt(descriptor, IPPROTO_TCP, TCP_MAXSEG, &segment_bytes, sizeof segment_bytes);
    return descriptor;
}

void control_begin(struct control *control, int descriptor, bool is_server)
{
    *control = (struct control){.descriptor = descriptor, .is_server = is_server};
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
}

static bool control_write(struct control *control, const void *bytes, size_t length, uint64_t deadline_ns,
                          struct failure *failure)
{
    const char *from = bytes;
    while (length) {
        ssize_t sent = send(control->descriptor, from, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            from += sent;
            length -= (size_t)sent;
        } else if (sent < 0 && errno == EINTR) {
            continue;
        } else if (sent < 0 && errno == EAGAIN) {
            if (!socket_wait(control->descriptor, POLLOUT, deadline_ns, "control channel is stuck", failure))
                return false;
        } else {
            control->turned_away = !control->heard;
            return fail(failure, EXIT_PEER, "control channel: the peer is gone (%s)", fail_errno_name(errno));
        }
    }
    return true;
}

static bool control_read(struct control *control, void *bytes, size_t length, uint64_t deadline_ns,
                         struct failure *failure)
{
    char *to = bytes;
    while (length) {
        ssize_t got = recv(control->descriptor, to, length, MSG_DONTWAIT);
        if (got > 0) {
            control->heard = true;
            to += got;
            length -= (size_t)got;
        } else if (got == 0 || errno == ECONNRESET) {
            control->turned_away = !control->heard;
            return fail(failure, EXIT_PEER, "control channel: closed by the peer");
        } else if (errno == EAGAIN) {
            if (!socket_wait(control->descriptor, POLLIN, deadline_ns, "no message of the peer", failure))
                return false;
        } else if (errno != EINTR) {
            return fail(failure, EXIT_PEER, "control channel: the peer is gone (%s)", fail_errno_name(errno));
        }
    }
    return true;
}

/* MAC of one frame; the direction and the number keep a frame from being sent back or sent again. */
static void control_mac(const struct control *control, bool from_server, uint64_t number, const void *payload,
                        size_t length, uint8_t mac[SHA256_BYTES])
{
    uint8_t head[9] = {from_server};
    for (size_t i = 0; i < 8; i++)
        head[i + 1] = (uint8_t)(number >> (56 - 8 * i));
    struct bytes parts[] = {{head, sizeof head}, {payload, length}};
    hmac_sha256((struct bytes){control->session_key, SHA256_BYTES}, parts, 2, mac);
}

bool control_send(struct control *control, const struct text *message, uint64_t deadline_ns, struct failure *failure)
{
    struct text frame = {0};
    uint8_t mac[SHA256_BYTES], head[LENGTH_BYTES];
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        head[i] = (uint8_t)(message->length >> (24 - 8 * i));
    text_add(&frame, head, sizeof head);
    text_add(&frame, message->data, message->length);
    if (control->authenticated) {
        control_mac(control, control->is_server, control->sent_no++, message->data, message->length, mac);
        text_add(&frame, mac, sizeof mac);
    }
    bool ok = control_write(control, frame.data, frame.length, deadline_ns, failure);
    text_free(&frame);
    return ok;
}

static bool control_verify(struct control *control, const struct received *message, uint64_t deadline_ns,
                           struct failure *failure)
{
    uint8_t found[SHA256_BYTES], right[SHA256_BYTES];
    if (!control->authenticated)
        return true;
    if (!control_read(control, found, sizeof found, deadline_ns, failure))
        return false;
    control_mac(control, !control->is_server, control->received_no++, message->payload, message->length, right);
    return hmac_equal(found, right) || fail(failure, EXIT_PEER, "control channel: a message was not the peer's");
}

static size_t frame_length(const struct control *control, const uint8_t *head, struct failure *failure)
{
    size_t length = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | (size_t)head[3];
    if (length > 0 && length <= (size_t)(control->authenticated ? CONTROL_PAYLOAD_MAX : CONTROL_HELLO_MAX))
        return length;
    fail(failure, EXIT_PEER, "control channel: the peer does not speak this protocol (frame of %zu bytes)", length);
    return 0;
}

bool control_receive(struct control *control, struct received *message, uint64_t deadline_ns, struct failure *failure)
{
    uint8_t head[LENGTH_BYTES];
    *message = (struct received){0};
    if (!control_read(control, head, sizeof head, deadline_ns, failure))
        return false;
    size_t length = frame_length(control, head, failure);
    if (!length)
        return false;
    message->payload = memory_new(length + 1, 1);
    message->length = length;
    if (control_read(control, message->payload, length, deadline_ns, failure) &&
        control_verify(control, message, deadline_ns, failure) &&
        (received_split(message) || fail(failure, EXIT_PEER, "control channel: a malformed message")))
        return true;
    received_free(message);
    return false;
}

/* What is there of the next `wanted` bytes; true when all of them are. */
static bool arrived(struct control *control, size_t wanted, struct failure *failure)
{
    char piece[16384];
    while (control->arrived.length < wanted) {
        size_t rest = wanted - control->arrived.length;
        ssize_t got = recv(control->descriptor, piece, rest < sizeof piece ? rest : sizeof piece, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (got <= 0)
            return fail(failure, EXIT_PEER, "control channel: closed by the peer");
        text_add(&control->arrived, piece, (size_t)got);
    }
    return true;
}

bool control_poll(struct control *control, struct received *message, struct failure *failure)
{
    uint8_t right[SHA256_BYTES];
    size_t mac_bytes = control->authenticated ? SHA256_BYTES : 0;
    if (!arrived(control, LENGTH_BYTES, failure))
        return false;
    size_t length = frame_length(control, (const uint8_t *)control->arrived.data, failure);
    if (!length || !arrived(control, LENGTH_BYTES + length + mac_bytes, failure))
        return false;
    *message = (struct received){.payload = memory_new(length + 1, 1), .length = length};
    memcpy(message->payload, control->arrived.data + LENGTH_BYTES, length);
    if (mac_bytes)
        control_mac(control, !control->is_server, control->received_no++, message->payload, length, right);
    bool ok = !mac_bytes || hmac_equal((const uint8_t *)control->arrived.data + LENGTH_BYTES + length, right) ||
              fail(failure, EXIT_PEER, "control channel: a message was not the peer's");
    text_free(&control->arrived);
    ok = ok && (received_split(message) || fail(failure, EXIT_PEER, "control channel: a malformed message"));
    if (!ok)
        received_free(message);
    return ok;
}

bool control_expect(struct control *control, const char *type, struct received *message, uint64_t deadline_ns,
                    struct failure *failure)
{
    if (!control_receive(control, message, deadline_ns, failure))
        return false;
    if (!strcmp(received_type(message), type))
        return true;
    const char *reason = received_get(message, "reason"), *hint = received_get(message, "hint");
    if (!strcmp(received_type(message), "refused") || !strcmp(received_type(message), "failed")) {
        if (hint && *hint)
            fail_hint(failure, "%s", hint);
        fail(failure, EXIT_PEER, "the %s %s: %s", control->is_server ? "client" : "server", received_type(message),
             reason ? reason : "no reason given");
    } else {
        fail(failure, EXIT_PEER, "control channel: expected %s, found %s", type, received_type(message));
    }
    received_free(message);
    return false;
}

bool control_readable(const struct control *control)
{
    struct pollfd poller = {.fd = control->descriptor, .events = POLLIN};
    return poll(&poller, 1, 0) > 0;
}

bool control_silent(struct control *control, struct failure *failure)
{
    struct received message;
    if (!control_readable(control))
        return true;
    if (control_expect(control, "", &message, clock_now_ns() + NS_PER_S, failure))
        received_free(&message);
    return fail(failure, EXIT_PEER, "control channel: a message out of turn");
}

void control_token(const struct control *control, uint8_t token[CONTROL_TOKEN_BYTES])
{
    uint8_t mac[SHA256_BYTES];
    struct bytes part = {"test channel", strlen("test channel")};
    hmac_sha256((struct bytes){control->session_key, SHA256_BYTES}, &part, 1, mac);
    memcpy(token, mac, CONTROL_TOKEN_BYTES);
}
