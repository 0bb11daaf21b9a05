/* See options.h. */
#include "describe/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char standard_text[] = "system";

/* The bytes of a field of text; 0: it is none. */
static size_t text_bytes(const struct option_row *row)
{
    return row->type == OPTION_NAME ? OPTION_NAME_BYTES : row->type == OPTION_CPUS ? OPTION_CPUS_BYTES : 0;
}

const char *unit_of(const char *name)
{
    static const char *const units[] = {"ns",    "us",    "ms", "s",     "utc",   "bytes", "bps", "pps", "ratio",
                                        "count", "index", "no", "ticks", "flops", "eps",   "rpm", NULL};
    const char *suffix = strrchr(name, '_');
    for (size_t i = 0; suffix && units[i]; i++)
        if (!strcmp(suffix + 1, units[i]))
            return units[i];
    return NULL;
}

static double option_standard(const struct option_table *table, const struct option_row *row)
{
    for (const struct option_default *one = table->defaults; one && one->name; one++)
        if (!strcmp(one->name, row->name))
            return one->standard;
    return row->standard;
}

static void option_store(const struct option_row *row, void *options, double value)
{
    char *field = (char *)options + row->offset;
    if (row->type == OPTION_NUMBER)
        *(double *)(void *)field = value;
    else
        *(int64_t *)(void *)field = (int64_t)value;
}

double option_load(const struct option_row *row, const void *options)
{
    const char *field = (const char *)options + row->offset;
    if (row->type == OPTION_NUMBER)
        return *(const double *)(const void *)field;
    return (double)*(const int64_t *)(const void *)field;
}

void options_default(const struct option_table *table, void *options)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct option_row *row = &table->rows[i];
        if (!text_bytes(row)) {
            option_store(row, options, option_standard(table, row));
            continue;
        }
        memset((char *)options + row->offset, 0, text_bytes(row));
        memcpy((char *)options + row->offset, standard_text, sizeof standard_text);
    }
}

const struct option_row *options_find(const struct option_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->rows[i].name, name))
            return &table->rows[i];
    return NULL;
}

static void option_allowed(const struct option_row *row, struct text *out)
{
    const char *unit = unit_of(row->name);
    if (row->type == OPTION_CHOICE) {
        text_print(out, "one of");
        for (size_t i = 0; row->choices[i]; i++)
            text_print(out, " %s", row->choices[i]);
    } else if (row->type == OPTION_BOOLEAN) {
        text_print(out, "true or false");
    } else if (row->type == OPTION_NAME) {
        text_print(out, "name of a-z, 0-9, _, . and -, %d at most", OPTION_NAME_BYTES - 1);
    } else if (row->type == OPTION_CPUS) {
        text_print(out, "system, or a list such as 0-7,16, %d characters at most", OPTION_CPUS_BYTES - 1);
    } else {
        text_print(out, "%s %.10g to %.10g%s%s", row->type == OPTION_INTEGER ? "integer" : "number", row->minimum,
                   row->maximum, unit ? " " : "", unit ? unit : "");
    }
}

/* Words of a unit as campaigns write them, in any case. */
static const struct unit_word {
    const char *unit, *word;
    double of_base; /* of times: ns */
} unit_words[] = {{"bytes", "b", 1}, {"bps", "bit", 1},   {"bps", "bps", 1},   {"bps", "bit/s", 1},
                  {"ns", "ns", 1},   {"ns", "us", 1e3},   {"ns", "ms", 1e6},   {"ns", "s", 1e9},
                  {"ns", "m", 60e9}, {"ns", "min", 60e9}, {"ns", "h", 3600e9}, {"ns", "d", 86400e9},
                  {NULL, NULL, 0}};

static double word_of(const char *unit, const char *text)
{
    for (size_t i = 0; unit_words[i].unit; i++)
        if (!strcmp(unit_words[i].unit, unit) && !strcasecmp(unit_words[i].word, text))
            return unit_words[i].of_base;
    return 0;
}

/* Multiplies *value by what stands behind it: k, M, G, T, or Ki, Mi, Gi, Ti for powers of 1024, then the unit of the
 * option, or a unit of time. */
static bool value_scale(const char *unit, const char *text, double *value)
{
    static const char letters[] = "kmgt", *const times[] = {"ns", "us", "ms", "s", NULL};
    if (!*text)
        return true;
    for (size_t i = 0; unit && times[i]; i++)
        if (!strcmp(unit, times[i])) {
            *value = *value * word_of("ns", text) / word_of("ns", unit);
            return word_of("ns", text) > 0;
        }
    const char *letter = strchr(letters, tolower((unsigned char)*text));
    bool binary = letter && (text[1] == 'i' || text[1] == 'I');
    const char *rest = letter ? text + 1 + binary : text;
    if (letter)
        *value *= pow(binary ? 1024 : 1000, (double)(letter - letters + 1));
    return !*rest || (unit && word_of(unit, rest) > 0);
}

/* The digits of a decimal number, whole or not, and what it is multiplied by: 1500, 1e9, 1.5G, 64KiB, 200ms. */
static bool option_parse_number(const struct option_row *row, const char *text, double *value)
{
    char *end = NULL;
    errno = 0;
    if (!*text || !strchr("+-.0123456789", *text) || strpbrk(text, "xX"))
        return false;
    *value = strtod(text, &end);
    if (errno || end == text || !value_scale(unit_of(row->name), end, value))
        return false;
    bool whole = row->type != OPTION_INTEGER || *value == floor(*value);
    return whole && isfinite(*value) && *value >= row->minimum && *value <= row->maximum;
}

static bool option_parse(const struct option_row *row, const char *text, double *value)
{
    if (row->type == OPTION_CHOICE) {
        for (size_t i = 0; row->choices[i]; i++) {
            if (!strcmp(text, row->choices[i])) {
                *value = (double)i;
                return true;
            }
        }
        return false;
    }
    if (row->type == OPTION_BOOLEAN) {
        *value = !strcmp(text, "true") || !strcmp(text, "1");
        return *value > 0 || !strcmp(text, "false") || !strcmp(text, "0");
    }
    return option_parse_number(row, text, value);
}

/* Stored as it stands, the rest of the field as NUL: the same text is the same bytes. */
static bool option_store_text(const struct option_row *row, void *options, const char *value)
{
    size_t length = strlen(value), bytes = text_bytes(row);
    bool is_word = row->type != OPTION_CPUS || !strcmp(value, standard_text);
    char *field = (char *)options + row->offset;
    if (!length || length >= bytes ||
        strspn(value, is_word ? "abcdefghijklmnopqrstuvwxyz0123456789_.-" : "0123456789,-") != length)
        return false;
    memset(field, 0, bytes);
    memcpy(field, value, length);
    return true;
}

bool options_set(const struct option_table *table, void *options, const char *name, const char *value,
                 struct failure *failure)
{
    const struct option_row *row = options_find(table, name);
    struct text allowed = {0};
    double parsed = 0;
    if (!row) {
        for (size_t i = 0; i < table->count; i++)
            text_print(&allowed, " %s", table->rows[i].name);
        fail(failure, EXIT_USAGE, "%s: unknown option: allowed:%s", name, text_string(&allowed));
    } else if (text_bytes(row) ? !option_store_text(row, options, value) : !option_parse(row, value, &parsed)) {
        option_allowed(row, &allowed);
        fail(failure, EXIT_USAGE, "%s: found %s: allowed: %s", name, *value ? value : "nothing", text_string(&allowed));
    } else if (!text_bytes(row)) {
        option_store(row, options, parsed);
    }
    text_free(&allowed);
    return !failure->failed;
}

void options_value(const struct option_row *row, const void *options, struct text *out)
{
    if (text_bytes(row)) {
        text_print(out, "%s", (const char *)options + row->offset);
        return;
    }
    double value = option_load(row, options);
    if (row->type == OPTION_CHOICE)
        text_print(out, "%s", row->choices[(size_t)value]);
    else if (row->type == OPTION_BOOLEAN)
        text_print(out, value > 0 ? "true" : "false");
    else if (row->type == OPTION_INTEGER)
        text_print(out, "%.0f", value);
    else
        text_print(out, "%.17g", value);
}

static void option_json(const struct option_row *row, double value, struct text *json)
{
    if (text_bytes(row)) {
        json_string(json, standard_text);
    } else if (row->type == OPTION_CHOICE) {
        json_string(json, row->choices[(size_t)value]);
    } else if (row->type == OPTION_BOOLEAN) {
        json_boolean(json, value > 0);
    } else if (row->type == OPTION_INTEGER) {
        json_integer(json, (int64_t)value);
    } else {
        /* The shortest text that reads back as the same double: the caller compares it with what it asked for. */
        struct text shortest = {0};
        for (int digits = 1; digits <= 17; digits++) {
            text_clear(&shortest);
            text_print(&shortest, "%.*g", digits, value);
            if (strtod(text_string(&shortest), NULL) == value)
                break;
        }
        json_raw(json, text_string(&shortest));
        text_free(&shortest);
    }
}

void options_echo(const struct option_table *table, const void *options, struct text *json)
{
    json_open(json, '{');
    for (size_t i = 0; i < table->count; i++) {
        json_key(json, table->rows[i].name);
        if (text_bytes(&table->rows[i]))
            json_string(json, (const char *)options + table->rows[i].offset);
        else
            option_json(&table->rows[i], option_load(&table->rows[i], options), json);
    }
    json_close(json, '}');
}

static const char *option_type_name(enum option_type type)
{
    static const char *const names[] = {"integer", "number", "boolean", "choice", "name", "cpus"};
    return names[type];
}

static void option_describe_range(const struct option_row *row, struct text *json)
{
    bool ranged = row->type == OPTION_INTEGER || row->type == OPTION_NUMBER;
    json_key(json, "minimum");
    if (ranged)
        option_json(row, row->minimum, json);
    else
        json_null(json);
    json_key(json, "maximum");
    if (ranged)
        option_json(row, row->maximum, json);
    else
        json_null(json);
    json_key(json, "choices");
    if (!row->choices) {
        json_null(json);
        return;
    }
    json_open(json, '[');
    for (size_t i = 0; row->choices[i]; i++)
        json_string(json, row->choices[i]);
    json_close(json, ']');
}

void options_describe(const struct option_table *table, struct text *json)
{
    json_open(json, '[');
    for (size_t i = 0; i < table->count; i++) {
        const struct option_row *row = &table->rows[i];
        json_open(json, '{');
        json_key(json, "name");
        json_string(json, row->name);
        json_key(json, "type");
        json_string(json, option_type_name(row->type));
        json_key(json, "unit");
        json_string(json, unit_of(row->name));
        json_key(json, "default");
        option_json(row, option_standard(table, row), json);
        option_describe_range(row, json);
        json_key(json, "help");
        json_string(json, row->help);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void options_help(const struct option_table *table, struct text *out)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct option_row *row = &table->rows[i];
        struct text standard = {0};
        option_json(row, option_standard(table, row), &standard);
        text_print(out, "  --%s VALUE\n      %s\n      ", row->name, row->help);
        option_allowed(row, out);
        text_print(out, "; default %s\n", text_string(&standard));
        text_free(&standard);
    }
}
