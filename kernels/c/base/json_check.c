/* Is this text one JSON value (RFC 8259)? A peer's evidence is passed on in our line only when it is. Syntax only. */
#include "base/text.h"

#include <ctype.h>
#include <string.h>

enum { NESTING_MAX = 32 };

static const char *check_value(const char *s, int depth);

static const char *skip_space(const char *s)
{
    while (*s == ' ' || *s == '\t' || *s == '\n' || *s == '\r')
        s++;
    return s;
}

static const char *check_string(const char *s)
{
    if (*s++ != '"')
        return NULL;
    while (*s != '"') {
        if ((unsigned char)*s < 0x20)
            return NULL; /* control character or the end */
        if (*s != '\\') {
            size_t length = utf8_length((const unsigned char *)s);
            if (!length)
                return NULL;
            s += length;
            continue;
        }
        s++;
        if (*s == 'u') {
            for (int i = 1; i <= 4; i++)
                if (!isxdigit((unsigned char)s[i]))
                    return NULL;
            s += 5;
        } else if (*s && strchr("\"\\/bfnrt", *s)) {
            s++;
        } else {
            return NULL;
        }
    }
    return s + 1;
}

static const char *skip_digits(const char *s)
{
    if (!isdigit((unsigned char)*s))
        return NULL;
    while (isdigit((unsigned char)*s))
        s++;
    return s;
}

static const char *check_number(const char *s)
{
    if (*s == '-')
        s++;
    s = *s == '0' ? s + 1 : skip_digits(s);
    if (s && *s == '.')
        s = skip_digits(s + 1);
    if (s && (*s == 'e' || *s == 'E')) {
        s++;
        if (*s == '+' || *s == '-')
            s++;
        s = skip_digits(s);
    }
    return s;
}

static const char *check_member(const char *s, int depth)
{
    s = check_string(skip_space(s));
    if (!s)
        return NULL;
    s = skip_space(s);
    return *s == ':' ? check_value(s + 1, depth) : NULL;
}

static const char *check_list(const char *s, int depth)
{
    char close = *s == '{' ? '}' : ']';
    s = skip_space(s + 1);
    if (*s == close)
        return s + 1;
    for (;;) {
        s = close == '}' ? check_member(s, depth) : check_value(s, depth);
        if (!s)
            return NULL;
        s = skip_space(s);
        if (*s == close)
            return s + 1;
        if (*s++ != ',')
            return NULL;
    }
}

static const char *check_value(const char *s, int depth)
{
    s = skip_space(s);
    if (depth > NESTING_MAX)
        return NULL;
    if (*s == '{' || *s == '[')
        return check_list(s, depth + 1);
    if (*s == '"')
        return check_string(s);
    if (!strncmp(s, "true", 4) || !strncmp(s, "null", 4))
        return s + 4;
    if (!strncmp(s, "false", 5))
        return s + 5;
    return check_number(s);
}

bool json_check(const char *json)
{
    const char *end = check_value(json, 0);
    return end && !*skip_space(end);
}
