/* Growing text and the JSON that is written into it. Hides memory and commas. */
#ifndef HPCQ_TEXT_H
#define HPCQ_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data; /* always ends in NUL once something was added */
    size_t length;
    size_t capacity;
};

void text_add(struct text *text, const void *bytes, size_t length);
void text_print(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_clear(struct text *text);
void text_free(struct text *text);
const char *text_string(const struct text *text); /* "" when empty */
/* All of it from a byte on; false, with errno, where the descriptor takes no more, or a signal that asks us to end
 * comes while nobody reads. */
bool text_write(const struct text *text, size_t from, int descriptor);

/* Memory or exit 4: nothing here can go on without it. */
void *memory_new(size_t count, size_t size);
/* The same, from the beginning of a page on. */
void *memory_pages(size_t count, size_t size);
/* The list with room for `more` elements after `count`; *capacity, in elements, at least doubles when it grows. */
void *memory_more(void *list, size_t count, size_t *capacity, size_t more, size_t size);
/* Every byte written with what no compressor, no zero page and no deduplication makes cheaper. */
void memory_noise(void *to, size_t bytes);
bool memory_is_noise(const void *from, size_t bytes); /* as memory_noise() makes it */

/* JSON into a text; commas are set where the text before asks for one. */
void json_open(struct text *text, char bracket);
void json_close(struct text *text, char bracket);
void json_key(struct text *text, const char *key);
void json_string(struct text *text, const char *value); /* NULL becomes null; bytes that are no UTF-8 become U+FFFD */
void json_integer(struct text *text, int64_t value);
void json_unsigned(struct text *text, uint64_t value);
void json_number(struct text *text, double value); /* not finite becomes null */
void json_boolean(struct text *text, bool value);
void json_null(struct text *text);
void json_raw(struct text *text, const char *json); /* a value that is JSON already */

/* True when `json` is one whole JSON value; used before a peer's text is passed on. */
bool json_check(const char *json);
/* Bytes of the character that begins here; 0 where none does. */
size_t utf8_length(const unsigned char *s);

#endif
