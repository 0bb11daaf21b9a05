/* The control channel: one TCP connection, silent while a test runs. Hides framing, authentication and deadlines.
 *
 *   client                                server
 *     hello {protocol, nonce}        ->             in clear
 *                                    <- challenge {nonce, proof}      proof = HMAC(secret, "server" nonces)
 *     proof {proof}                  ->             proof = HMAC(secret, "client" nonces)
 *     ... from here every frame ends in HMAC(session key, direction, frame number, payload)
 *
 * A frame is a length (4 bytes, big-endian), the payload, and after the handshake 32 bytes of MAC. The payload is
 * lines: the type, then `key value`. The session key is HMAC(secret, "session" nonces); it also makes the token that
 * the first bytes on the test channel must carry. */
#ifndef HPCQ_CONTROL_H
#define HPCQ_CONTROL_H

#include "base/fail.h"
#include "base/sha256.h"
#include "base/text.h"
#include "wire/address.h"

#include <stdint.h>

enum {
    CONTROL_PROTOCOL = 1,
    CONTROL_TOKEN_BYTES = 16,
    CONTROL_NONCE_BYTES = 16,
    CONTROL_PAYLOAD_MAX = 64 << 20, /* raw evidence of a node with 256 CPUs and 2,000 interrupts, with room */
    CONTROL_HELLO_MAX = 4096,       /* before the peer has proved anything */
    SECRET_BYTES_MIN = 16,
    SECRET_BYTES_MAX = 1024
};

struct secret {
    uint8_t bytes[SECRET_BYTES_MAX];
    size_t length;
};

struct control {
    int descriptor;
    bool is_server;
    bool authenticated;
    bool heard, turned_away; /* the peer said something; it closed before it said anything */
    uint8_t session_key[SHA256_BYTES];
    uint64_t sent_no, received_no;
    struct text arrived; /* control_poll: of a frame that is not whole yet */
};

/* A message being written. */
void message_begin(struct text *message, const char *type);
void message_put(struct text *message, const char *key, const char *value); /* line breaks become spaces */
void message_put_number(struct text *message, const char *key, double value);
void message_put_unsigned(struct text *message, const char *key, uint64_t value);

/* A message received: type, then key and value in turn, each ending in NUL. */
struct received {
    char *payload;
    size_t length;
};

/* Splits the payload in place; false when it is not `type` and then `key value` lines. */
bool received_split(struct received *message);
const char *received_type(const struct received *message);
const char *received_get(const struct received *message, const char *key);   /* NULL when absent */
double received_number(const struct received *message, const char *key);     /* NAN when absent */
uint64_t received_unsigned(const struct received *message, const char *key); /* 0 when absent */
/* Walks keys that begin with `prefix`; *cursor starts at NULL. Returns the rest of the key, and its value. */
const char *received_next(const struct received *message, const char *prefix, const char **cursor, const char **value);
void received_free(struct received *message);

/* Only from a file of mode 0600. Whoever holds a secret dumps no core. */
bool secret_read(const char *path, struct secret *secret, struct failure *failure);
void secret_wipe(struct secret *secret);

int control_socket(const struct address *address, struct failure *failure); /* of small segments; -1 on failure */
void control_begin(struct control *control, int descriptor, bool is_server);
bool control_authenticate(struct control *control, const struct secret *secret, uint64_t deadline_ns,
                          struct failure *failure);
/* The server's side of the handshake, message by message: for who cannot wait for one peer. */
struct nonces {
    uint8_t client[CONTROL_NONCE_BYTES], server[CONTROL_NONCE_BYTES];
};
bool control_challenge(struct control *control, const struct secret *secret, struct nonces *nonces,
                       const struct received *hello, uint64_t deadline_ns, struct failure *failure);
bool control_proven(struct control *control, const struct secret *secret, const struct nonces *nonces,
                    const struct received *proof, struct failure *failure);
bool control_send(struct control *control, const struct text *message, uint64_t deadline_ns, struct failure *failure);
bool control_receive(struct control *control, struct received *message, uint64_t deadline_ns, struct failure *failure);
/* Takes what is there, without waiting: true with *message once a whole one is; false, with a failure or without. */
bool control_poll(struct control *control, struct received *message, struct failure *failure);
/* Receives and demands this type; a peer's `refused` or `failed` becomes our failure. */
bool control_expect(struct control *control, const char *type, struct received *message, uint64_t deadline_ns,
                    struct failure *failure);
/* While nothing may be said: true when nothing was; a message, or the peer's end, becomes our failure. */
bool control_silent(struct control *control, struct failure *failure);
bool control_readable(const struct control *control); /* a message or the end is waiting */
void control_token(const struct control *control, uint8_t token[CONTROL_TOKEN_BYTES]);

#endif
