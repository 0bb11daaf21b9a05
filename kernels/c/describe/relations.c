/* See relations.h. */
#include "describe/relations.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PORT_LAST = 65535 };

static bool is_one_of(const char *word, const char *words)
{
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

static bool has_one_of(const struct option_table *table, const void *options, const char *name, const char *words)
{
    struct text value = {0};
    options_value(options_find(table, name), options, &value);
    bool found = is_one_of(text_string(&value), words);
    text_free(&value);
    return found;
}

static double number_of(const struct option_table *table, const void *options, const char *name)
{
    const struct option_row *row = options_find(table, name);
    return row ? option_load(row, options) : 0;
}

static double factor_of(const struct option_relation *relation)
{
    return relation->factor > 0 ? relation->factor : 1;
}

static double last_port(const struct option_table *table, const void *options, const struct option_relation *relation)
{
    double last = number_of(table, options, relation->last);
    return last > 0 ? last : PORT_LAST;
}

static bool relation_holds(const struct option_table *table, const void *options,
                           const struct option_relation *relation)
{
    double value = number_of(table, options, relation->option);
    double other = relation->other ? number_of(table, options, relation->other) : 0;
    switch (relation->kind) {
    case RELATION_AT_MOST:
        return value <= other;
    case RELATION_AT_LEAST:
        return value <= 0 || value >= factor_of(relation) * (relation->other ? other : 1);
    case RELATION_PRODUCT:
        return value * other <= relation->factor;
    case RELATION_MULTIPLE:
        return fmod(value, relation->factor) == 0;
    case RELATION_ONE_OF:
        return has_one_of(table, options, relation->option, relation->words);
    case RELATION_COUNT_OF_PORTS:
        return other <= 0 || value <= last_port(table, options, relation) - other + 1;
    }
    return true;
}

/* What is allowed beside these options. */
static void relation_allowed(const struct option_table *table, const void *options,
                             const struct option_relation *relation, struct text *out)
{
    double other = relation->other ? number_of(table, options, relation->other) : 0;
    switch (relation->kind) {
    case RELATION_AT_MOST:
        text_print(out, "%.0f at most (%s)", other, relation->other);
        break;
    case RELATION_AT_LEAST:
        text_print(out, "%.0f and more", factor_of(relation) * (relation->other ? other : 1));
        if (relation->other)
            text_print(out, relation->factor > 0 ? " (%s times %.0f)" : " (%s)", relation->other, relation->factor);
        break;
    case RELATION_PRODUCT:
        text_print(out, "%.0f at most with %s %.0f", floor(relation->factor / other), relation->other, other);
        break;
    case RELATION_MULTIPLE:
        text_print(out, "a multiple of %.0f", relation->factor);
        break;
    case RELATION_ONE_OF:
        text_print(out, "%s", relation->words);
        break;
    case RELATION_COUNT_OF_PORTS:
        text_print(out, "%.0f at most with the source ports %.0f to %.0f",
                   last_port(table, options, relation) - other + 1, other, last_port(table, options, relation));
    }
    if (!relation->when)
        return;
    text_print(out, " where %s is ", relation->when);
    options_value(options_find(table, relation->when), options, out);
}

bool relations_hold(const struct option_table *table, const void *options, struct failure *failure)
{
    for (size_t i = 0; i < table->relation_count; i++) {
        const struct option_relation *relation = &table->relations[i];
        if ((relation->when && !has_one_of(table, options, relation->when, relation->when_words)) ||
            relation_holds(table, options, relation))
            continue;
        struct text found = {0}, allowed = {0};
        options_value(options_find(table, relation->option), options, &found);
        relation_allowed(table, options, relation, &allowed);
        fail(failure, EXIT_USAGE, "%s: found %s: allowed: %s", relation->option, text_string(&found),
             text_string(&allowed));
        text_free(&found);
        text_free(&allowed);
        return false;
    }
    return true;
}

/* The rule in words, whatever the options are. */
static void relation_words(const struct option_relation *relation, struct text *out)
{
    switch (relation->kind) {
    case RELATION_AT_MOST:
        text_print(out, "%s at most", relation->other);
        break;
    case RELATION_AT_LEAST:
        if (!relation->other)
            text_print(out, "%.0f and more, or 0", relation->factor);
        else
            text_print(out, relation->factor > 0 ? "%s times %.0f and more, or 0" : "%s and more, or 0",
                       relation->other, relation->factor);
        break;
    case RELATION_PRODUCT:
        text_print(out, "its product with %s is %.0f at most", relation->other, relation->factor);
        break;
    case RELATION_MULTIPLE:
        text_print(out, "a multiple of %.0f", relation->factor);
        break;
    case RELATION_ONE_OF:
        text_print(out, strchr(relation->words, ' ') ? "one of %s" : "%s", relation->words);
        break;
    case RELATION_COUNT_OF_PORTS:
        text_print(out, "at most the ports from %s to %s", relation->other, relation->last);
    }
    if (relation->when)
        text_print(out, strchr(relation->when_words, ' ') ? " where %s is one of %s" : " where %s is %s",
                   relation->when, relation->when_words);
}

static void words_describe(struct text *json, const char *key, const char *words)
{
    char word[64];
    json_key(json, key);
    json_open(json, '[');
    while (words && *words) {
        size_t length = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        json_string(json, word);
        words += length + (words[length] == ' ');
    }
    json_close(json, ']');
}

void relations_describe(const struct option_table *table, struct text *json)
{
    static const char *const kinds[] = {"at_most", "at_least", "product", "multiple", "one_of", "count_of_ports"};
    json_open(json, '[');
    for (size_t i = 0; i < table->relation_count; i++) {
        const struct option_relation *relation = &table->relations[i];
        struct text help = {0};
        relation_words(relation, &help);
        json_open(json, '{');
        json_key(json, "option");
        json_string(json, relation->option);
        json_key(json, "kind");
        json_string(json, kinds[relation->kind]);
        json_key(json, "other");
        json_string(json, relation->other);
        json_key(json, "last");
        json_string(json, relation->last);
        json_key(json, "factor");
        json_integer(json, (int64_t)factor_of(relation));
        words_describe(json, "words", relation->words);
        json_key(json, "when");
        json_string(json, relation->when);
        words_describe(json, "when_words", relation->when_words);
        json_key(json, "help");
        json_string(json, text_string(&help));
        json_close(json, '}');
        text_free(&help);
    }
    json_close(json, ']');
}

void relations_help(const struct option_table *table, struct text *out)
{
    for (size_t i = 0; i < table->relation_count; i++) {
        text_print(out, "  %s: ", table->relations[i].option);
        relation_words(&table->relations[i], out);
        text_print(out, "\n");
    }
}
