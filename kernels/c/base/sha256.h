/* SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), so that the kernels need nothing but libc. */
#ifndef HPCQ_SHA256_H
#define HPCQ_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK_BYTES = 64 };

struct sha256 {
    uint32_t state[8];
    uint64_t length_bytes;
    uint8_t block[SHA256_BLOCK_BYTES];
};

void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *bytes, size_t length);
void sha256_end(struct sha256 *hash, uint8_t digest[SHA256_BYTES]);

/* One part of a message; HMAC takes a list of them, so that nothing is copied together. */
struct bytes {
    const void *data;
    size_t length;
};

void hmac_sha256(struct bytes key, const struct bytes *parts, size_t part_count, uint8_t mac[SHA256_BYTES]);
bool hmac_equal(const uint8_t *a, const uint8_t *b); /* in constant time, SHA256_BYTES each */

#endif
