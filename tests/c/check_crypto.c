/* SHA-256 (FIPS 180-2 appendix B, and NIST's one million a) and HMAC-SHA256 (RFC 4231). */
#include "base/sha256.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>

static const char *hex(const uint8_t digest[SHA256_BYTES])
{
    static char text[2 * SHA256_BYTES + 1];
    for (size_t i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return text;
}

static const char *sha256_hex(const char *message, size_t length, size_t chunk)
{
    struct sha256 hash;
    uint8_t digest[SHA256_BYTES];
    sha256_begin(&hash);
    for (size_t at = 0; at < length; at += chunk)
        sha256_add(&hash, message + at, length - at < chunk ? length - at : chunk);
    sha256_end(&hash, digest);
    return hex(digest);
}

static const char *hmac_hex(const void *key, size_t key_length, const void *data, size_t length)
{
    uint8_t mac[SHA256_BYTES];
    /* In two parts: the result must not depend on where the message is cut. */
    struct bytes parts[] = {{data, length / 2}, {(const char *)data + length / 2, length - length / 2}};
    hmac_sha256((struct bytes){key, key_length}, parts, 2, mac);
    return hex(mac);
}

static void check_sha256(void)
{
    const char *long_message = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char *million = malloc(1000000);
    CHECK(million != NULL);
    memset(million, 'a', 1000000);
    CHECK_TEXT(sha256_hex("", 0, 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK_TEXT(sha256_hex("abc", 3, 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t chunk = 1; chunk <= 56; chunk++)
        CHECK_TEXT(sha256_hex(long_message, 56, chunk),
                   "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK_TEXT(sha256_hex(million, 1000000, 977), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

void check_crypto(void)
{
    uint8_t key[131], data[152];
    check_sha256();
    memset(key, 0x0b, 20); /* RFC 4231 test case 1 */
    CHECK_TEXT(hmac_hex(key, 20, "Hi There", 8), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    CHECK_TEXT(hmac_hex("Jefe", 4, "what do ya want for nothing?", 28), /* 2 */
               "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(data, 0xdd, 50);
    CHECK_TEXT(hmac_hex(key, 20, data, 50), /* 3 */
               "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    for (size_t i = 0; i < 25; i++)
        key[i] = (uint8_t)(i + 1);
    memset(data, 0xcd, 50);
    CHECK_TEXT(hmac_hex(key, 25, data, 50), /* 4 */
               "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
    memset(key, 0xaa, sizeof key);
    CHECK_TEXT(hmac_hex(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54), /* 6 */
               "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    const char *seven = "This is a test using a larger than block-size key and a larger than block-size data. The key "
                        "needs to be hashed before being used by the HMAC algorithm.";
    CHECK_TEXT(hmac_hex(key, 131, seven, strlen(seven)), /* 7 */
               "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
    uint8_t other[SHA256_BYTES] = {0}, same[SHA256_BYTES] = {0};
    CHECK(hmac_equal(other, same));
    other[31] = 1;
    CHECK(!hmac_equal(other, same));
}
