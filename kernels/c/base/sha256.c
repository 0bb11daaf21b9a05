/* SHA-256 after FIPS 180-4 section 6.2, HMAC after RFC 2104. */
#include "base/sha256.h"

#include <string.h>

/* First 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2). */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, unsigned n)
{
    return (x >> n) | (x << (32 - n));
}

static void sha256_schedule(const uint8_t *block, uint32_t w[64])
{
    for (size_t i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               (uint32_t)block[4 * i + 3];
    for (size_t i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ (w[i - 15] >> 3);
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

static void sha256_block(struct sha256 *hash, const uint8_t *block)
{
    uint32_t w[64], v[8];
    sha256_schedule(block, w);
    memcpy(v, hash->state, sizeof v);
    for (size_t i = 0; i < 64; i++) {
        uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
        uint32_t choose = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1 = v[7] + s1 + choose + round_constants[i] + w[i];
        uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + s0 + majority;
    }
    for (size_t i = 0; i < 8; i++)
        hash->state[i] += v[i];
}

void sha256_begin(struct sha256 *hash)
{
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, initial, sizeof initial);
    hash->length_bytes = 0;
}

void sha256_add(struct sha256 *hash, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    while (length) {
        size_t used = (size_t)(hash->length_bytes % SHA256_BLOCK_BYTES);
        size_t take = SHA256_BLOCK_BYTES - used;
        if (take > length)
            take = length;
        memcpy(hash->block + used, from, take);
        hash->length_bytes += take;
        from += take;
        length -= take;
        if (used + take == SHA256_BLOCK_BYTES)
            sha256_block(hash, hash->block);
    }
}

void sha256_end(struct sha256 *hash, uint8_t digest[SHA256_BYTES])
{
    uint64_t bits = hash->length_bytes * 8;
    uint8_t length[8];
    for (size_t i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(hash, "\x80", 1);
    while (hash->length_bytes % SHA256_BLOCK_BYTES != SHA256_BLOCK_BYTES - 8)
        sha256_add(hash, "", 1);
    sha256_add(hash, length, sizeof length);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void hmac_sha256(struct bytes key, const struct bytes *parts, size_t part_count, uint8_t mac[SHA256_BYTES])
{
    uint8_t inner[SHA256_BLOCK_BYTES] = {0}, outer[SHA256_BLOCK_BYTES];
    struct sha256 hash;
    if (key.length > SHA256_BLOCK_BYTES) {
        sha256_begin(&hash);
        sha256_add(&hash, key.data, key.length);
        sha256_end(&hash, inner);
    } else if (key.length) {
        memcpy(inner, key.data, key.length);
    }
    for (size_t i = 0; i < SHA256_BLOCK_BYTES; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    sha256_begin(&hash);
    sha256_add(&hash, inner, sizeof inner);
    for (size_t i = 0; i < part_count; i++)
        sha256_add(&hash, parts[i].data, parts[i].length);
    sha256_end(&hash, mac);
    sha256_begin(&hash);
    sha256_add(&hash, outer, sizeof outer);
    sha256_add(&hash, mac, SHA256_BYTES);
    sha256_end(&hash, mac);
}

bool hmac_equal(const uint8_t *a, const uint8_t *b)
{
    uint8_t difference = 0;
    for (size_t i = 0; i < SHA256_BYTES; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}
