/* The secret and the mutual proof that both ends know it. See control.h for the order of the messages. */
#include "wire/control.h"

#include "base/portable.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static bool secret_allowed(const char *path, int descriptor, struct failure *failure)
{
    struct stat status;
    if (fstat(descriptor, &status))
        return fail_system(failure, "secret file %s", path);
    if (!S_ISREG(status.st_mode))
        return fail(failure, EXIT_USAGE, "secret file %s: not a regular file", path);
    if (status.st_mode & 077) {
        fail_hint(failure, "chmod 600 %s, and make a new secret if others could read it", path);
        return fail(failure, EXIT_USAGE, "secret file %s: mode %04o: allowed 0600", path,
                    (unsigned)status.st_mode & 07777);
    }
    if (status.st_uid != geteuid() && geteuid() != 0)
        return fail(failure, EXIT_USAGE, "secret file %s: belongs to user %u, not to us", path,
                    (unsigned)status.st_uid);
    return true;
}

bool secret_read(const char *path, struct secret *secret, struct failure *failure)
{
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        int error = errno;
        return fail(failure, EXIT_USAGE, "secret file %s: %s (%s)", path, strerror(error), fail_errno_name(error));
    }
    ssize_t got = -1;
    bool ok = secret_allowed(path, descriptor, failure);
    if (ok && (got = read(descriptor, secret->bytes, sizeof secret->bytes)) < 0)
        ok = fail_system(failure, "secret file %s", path);
    close(descriptor);
    while (got > 0 && isspace(secret->bytes[got - 1]))
        got--;
    if (ok && got < SECRET_BYTES_MIN)
        return fail(failure, EXIT_USAGE, "secret file %s: %zd bytes: allowed %d to %d", path, got, SECRET_BYTES_MIN,
                    SECRET_BYTES_MAX);
    secret->length = ok ? (size_t)got : 0;
    return ok;
}

/* Through a volatile pointer: a compiler leaves out what it thinks nobody reads. */
void secret_wipe(struct secret *secret)
{
    volatile uint8_t *bytes = (volatile uint8_t *)secret;
    for (size_t i = 0; i < sizeof *secret; i++)
        bytes[i] = 0;
}

static void to_hex(const uint8_t *bytes, size_t length, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < length; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * length] = '\0';
}

static bool from_hex(const char *text, uint8_t *bytes, size_t length)
{
    if (!text || strlen(text) != 2 * length)
        return false;
    for (size_t i = 0; i < length; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], 0}, *end;
        bytes[i] = (uint8_t)strtoul(pair, &end, 16);
        if (*end || !isxdigit((unsigned char)pair[0]))
            return false;
    }
    return true;
}

static void nonces_mac(const struct secret *secret, const char *purpose, const struct nonces *nonces,
                       uint8_t mac[SHA256_BYTES])
{
    struct bytes parts[] = {{"hpcq 1 ", 7}, {purpose, strlen(purpose)}, {nonces, sizeof *nonces}};
    hmac_sha256((struct bytes){secret->bytes, secret->length}, parts, 3, mac);
}

static bool proof_holds(const struct secret *secret, const char *purpose, const struct nonces *nonces,
                        const struct received *message)
{
    uint8_t right[SHA256_BYTES], found[SHA256_BYTES];
    nonces_mac(secret, purpose, nonces, right);
    return from_hex(received_get(message, "proof"), found, sizeof found) && hmac_equal(found, right);
}

static void message_put_hex(struct text *message, const char *key, const uint8_t *bytes, size_t length)
{
    char hex[2 * SHA256_BYTES + 1];
    to_hex(bytes, length, hex);
    message_put(message, key, hex);
}

static bool hello_check(const struct received *hello, struct nonces *nonces, struct failure *failure)
{
    if (received_unsigned(hello, "protocol") != CONTROL_PROTOCOL)
        return fail(failure, EXIT_PEER, "the client speaks protocol %llu, this server %d",
                    (unsigned long long)received_unsigned(hello, "protocol"), CONTROL_PROTOCOL);
    return from_hex(received_get(hello, "nonce"), nonces->client, sizeof nonces->client) ||
           fail(failure, EXIT_PEER, "hello without a nonce");
}

bool control_challenge(struct control *control, const struct secret *secret, struct nonces *nonces,
                       const struct received *hello, uint64_t deadline_ns, struct failure *failure)
{
    struct text out = {0};
    uint8_t mac[SHA256_BYTES];
    if (!hello_check(hello, nonces, failure) || !random_bytes(nonces->server, sizeof nonces->server, failure))
        return false;
    nonces_mac(secret, "server", nonces, mac);
    message_begin(&out, "challenge");
    message_put_hex(&out, "nonce", nonces->server, sizeof nonces->server);
    message_put_hex(&out, "proof", mac, sizeof mac);
    bool ok = control_send(control, &out, deadline_ns, failure);
    text_free(&out);
    return ok;
}

static void session_begin(struct control *control, const struct secret *secret, const struct nonces *nonces)
{
    nonces_mac(secret, "session", nonces, control->session_key);
    control->authenticated = true;
}

bool control_proven(struct control *control, const struct secret *secret, const struct nonces *nonces,
                    const struct received *proof, struct failure *failure)
{
    if (!proof_holds(secret, "client", nonces, proof))
        return fail(failure, EXIT_PEER, "the client does not know the secret");
    session_begin(control, secret, nonces);
    return true;
}

static bool authenticate_server(struct control *control, const struct secret *secret, struct nonces *nonces,
                                uint64_t deadline_ns, struct failure *failure)
{
    struct received message;
    if (!control_expect(control, "hello", &message, deadline_ns, failure))
        return false;
    bool ok = control_challenge(control, secret, nonces, &message, deadline_ns, failure);
    received_free(&message);
    if (!ok || !control_expect(control, "proof", &message, deadline_ns, failure))
        return false;
    ok = control_proven(control, secret, nonces, &message, failure);
    received_free(&message);
    return ok;
}

static bool authenticate_client(struct control *control, const struct secret *secret, struct nonces *nonces,
                                uint64_t deadline_ns, struct failure *failure)
{
    struct received message;
    struct text out = {0};
    uint8_t mac[SHA256_BYTES];
    bool ok = random_bytes(nonces->client, sizeof nonces->client, failure);
    message_begin(&out, "hello");
    message_put_unsigned(&out, "protocol", CONTROL_PROTOCOL);
    message_put_hex(&out, "nonce", nonces->client, sizeof nonces->client);
    ok = ok && control_send(control, &out, deadline_ns, failure) &&
         control_expect(control, "challenge", &message, deadline_ns, failure);
    if (ok) {
        ok = (from_hex(received_get(&message, "nonce"), nonces->server, sizeof nonces->server) &&
              proof_holds(secret, "server", nonces, &message)) ||
             fail_hint(failure, "both ends must read the same secret") ||
             fail(failure, EXIT_PEER, "the server does not know our secret");
        received_free(&message);
    }
    if (ok) {
        nonces_mac(secret, "client", nonces, mac);
        message_begin(&out, "proof");
        message_put_hex(&out, "proof", mac, sizeof mac);
        ok = control_send(control, &out, deadline_ns, failure);
    }
    text_free(&out);
    return ok;
}

bool control_authenticate(struct control *control, const struct secret *secret, uint64_t deadline_ns,
                          struct failure *failure)
{
    struct nonces nonces;
    if (control->is_server)
        return authenticate_server(control, secret, &nonces, deadline_ns, failure);
    if (!authenticate_client(control, secret, &nonces, deadline_ns, failure))
        return false;
    session_begin(control, secret, &nonces);
    return true;
}
