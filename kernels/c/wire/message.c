/* Messages of the control channel as text: written line by line, read by key. See control.h. */
#include "wire/control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void message_begin(struct text *message, const char *type)
{
    text_clear(message);
    text_print(message, "%s\n", type);
}

void message_put(struct text *message, const char *key, const char *value)
{
    text_print(message, "%s ", key);
    size_t from = message->length;
    text_print(message, "%s", value);
    for (size_t i = from; i < message->length; i++)
        if (message->data[i] == '\n')
            message->data[i] = ' ';
    text_add(message, "\n", 1);
}

void message_put_number(struct text *message, const char *key, double value)
{
    text_print(message, "%s %.17g\n", key, value);
}

void message_put_unsigned(struct text *message, const char *key, uint64_t value)
{
    text_print(message, "%s %llu\n", key, (unsigned long long)value);
}

bool received_split(struct received *message)
{
    char *end = message->payload + message->length;
    char *line = memchr(message->payload, '\n', message->length);
    if (!line || memchr(message->payload, '\0', message->length))
        return false;
    *line++ = '\0';
    while (line < end) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        char *space = stop ? memchr(line, ' ', (size_t)(stop - line)) : NULL;
        if (!space)
            return false;
        *space = '\0';
        *stop = '\0';
        line = stop + 1;
    }
    return true;
}

const char *received_type(const struct received *message)
{
    return message->payload;
}

const char *received_next(const struct received *message, const char *prefix, const char **cursor, const char **value)
{
    const char *end = message->payload + message->length;
    const char *key = *cursor ? *cursor : message->payload + strlen(message->payload) + 1;
    while (key < end) {
        const char *found = key + strlen(key) + 1;
        if (found >= end)
            return NULL;
        *cursor = found + strlen(found) + 1;
        *value = found;
        if (!strncmp(key, prefix, strlen(prefix)))
            return key + strlen(prefix);
        key = *cursor;
    }
    return NULL;
}

const char *received_get(const struct received *message, const char *key)
{
    const char *cursor = NULL, *value = NULL, *rest;
    while ((rest = received_next(message, key, &cursor, &value)))
        if (!*rest)
            return value;
    return NULL;
}

double received_number(const struct received *message, const char *key)
{
    const char *value = received_get(message, key);
    return value ? strtod(value, NULL) : (double)NAN;
}

uint64_t received_unsigned(const struct received *message, const char *key)
{
    const char *value = received_get(message, key);
    return value ? (uint64_t)strtoull(value, NULL, 10) : 0;
}

void received_free(struct received *message)
{
    free(message->payload);
    *message = (struct received){0};
}
