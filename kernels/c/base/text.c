/* Growing text and JSON writing. See text.h. */
#include "base/text.h"

#include "base/placed.h"
#include "base/signals.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *memory_new(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory) {
        fputs("error: out of memory\n", stderr);
        exit(4);
    }
    return memory;
}

void *memory_pages(size_t count, size_t size)
{
    void *memory = NULL;
    size_t bytes = (count ? count : 1) * (size ? size : 1);
    if (posix_memalign(&memory, PLACED_PAGE_BYTES, bytes)) {
        fputs("error: out of memory\n", stderr);
        exit(4);
    }
    return memset(memory, 0, bytes);
}

void *memory_more(void *list, size_t count, size_t *capacity, size_t more, size_t size)
{
    if (count + more <= *capacity)
        return list;
    size_t wanted = *capacity ? 2 * *capacity : 64;
    *capacity = wanted < count + more ? count + more : wanted;
    list = realloc(list, *capacity * size);
    if (!list) {
        fputs("error: out of memory\n", stderr);
        exit(4);
    }
    return list;
}

#define NOISE_SEED 0x9e3779b97f4a7c15ULL

static uint64_t noise_next(uint64_t state) /* xorshift64, Marsaglia 2003 */
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^ state << 17;
}

void memory_noise(void *to, size_t bytes)
{
    uint8_t *memory = to;
    uint64_t state = NOISE_SEED;
    for (size_t i = 0; i < bytes; i += sizeof state) {
        state = noise_next(state);
        memcpy(memory + i, &state, bytes - i < sizeof state ? bytes - i : sizeof state);
    }
}

bool memory_is_noise(const void *from, size_t bytes)
{
    const uint8_t *memory = from;
    uint64_t state = NOISE_SEED;
    for (size_t i = 0; i < bytes; i += sizeof state) {
        state = noise_next(state);
        if (memcmp(memory + i, &state, bytes - i < sizeof state ? bytes - i : sizeof state) != 0)
            return false;
    }
    return true;
}

static void text_reserve(struct text *text, size_t more)
{
    size_t need = text->length + more + 1;
    if (need <= text->capacity)
        return;
    size_t capacity = text->capacity ? text->capacity : 256;
    while (capacity < need)
        capacity *= 2;
    char *data = realloc(text->data, capacity);
    if (!data) {
        fputs("error: out of memory\n", stderr);
        exit(4);
    }
    text->data = data;
    text->capacity = capacity;
}

void text_add(struct text *text, const void *bytes, size_t length)
{
    text_reserve(text, length);
    if (length)
        memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void text_print(struct text *text, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length >= 0) {
        text_reserve(text, (size_t)length);
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void text_clear(struct text *text)
{
    text->length = 0;
    if (text->data)
        text->data[0] = '\0';
}

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

const char *text_string(const struct text *text)
{
    return text->data ? text->data : "";
}

bool text_write(const struct text *text, size_t from, int descriptor)
{
    for (size_t done = from; done < text->length;) {
        struct pollfd poller = {.fd = descriptor, .events = POLLOUT};
        ssize_t written = write(descriptor, text->data + done, text->length - done);
        if (written < 0 && errno == EAGAIN && poll(&poller, 1, -1) > 0) /* a pipe that does not block */
            continue;
        if (written < 0 && (errno != EINTR || signals_stop())) /* nobody reads, and somebody wants us to end */
            return false;
        done += written > 0 ? (size_t)written : 0;
    }
    return true;
}

/* A comma is due unless the value is the first in its bracket or follows its key. */
static void json_comma(struct text *text)
{
    if (!text->length)
        return;
    char last = text->data[text->length - 1];
    if (last != '{' && last != '[' && last != ':')
        text_add(text, ",", 1);
}

void json_open(struct text *text, char bracket)
{
    json_comma(text);
    text_add(text, &bracket, 1);
}

void json_close(struct text *text, char bracket)
{
    text_add(text, &bracket, 1);
}

/* Length of the UTF-8 sequence at `s`, or 0 when it is none (RFC 3629, table 3-7 of Unicode). */
size_t utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return length;
}

static void json_quote(struct text *text, const char *value)
{
    text_add(text, "\"", 1);
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        size_t length = utf8_length(s);
        if (*s == '"' || *s == '\\')
            text_print(text, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f)
            text_print(text, "\\u%04x", (unsigned)*s);
        else if (length)
            text_add(text, s, length);
        else
            text_add(text, "\xef\xbf\xbd", 3);
        s += length ? length : 1;
    }
    text_add(text, "\"", 1);
}

void json_key(struct text *text, const char *key)
{
    json_comma(text);
    json_quote(text, key);
    text_add(text, ":", 1);
}

void json_string(struct text *text, const char *value)
{
    if (!value) {
        json_null(text);
        return;
    }
    json_comma(text);
    json_quote(text, value);
}

void json_integer(struct text *text, int64_t value)
{
    json_comma(text);
    text_print(text, "%lld", (long long)value);
}

void json_unsigned(struct text *text, uint64_t value)
{
    json_comma(text);
    text_print(text, "%llu", (unsigned long long)value);
}

void json_number(struct text *text, double value)
{
    json_comma(text);
    if (!isfinite(value))
        text_print(text, "null");
    else if (value == floor(value) && fabs(value) < 9007199254740992.0) /* 2^53: exact as an integer */
        text_print(text, "%.0f", value == 0 ? 0.0 : value);
    else
        text_print(text, "%.10g", value);
}

void json_boolean(struct text *text, bool value)
{
    json_comma(text);
    text_print(text, value ? "true" : "false");
}

void json_null(struct text *text)
{
    json_comma(text);
    text_print(text, "null");
}

void json_raw(struct text *text, const char *json)
{
    json_comma(text);
    text_add(text, json, strlen(json));
}
