/* See arguments.h. */
#include "describe/arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct flag *flag_find(const struct flag *flags, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(flags[i].name, name))
            return &flags[i];
    return NULL;
}

static bool argument_unknown(const char *word, const struct flag *flags, size_t flag_count,
                             const struct option_table *table, struct failure *failure)
{
    struct text known = {0};
    for (size_t i = 0; i < flag_count; i++)
        text_print(&known, " --%s", flags[i].name);
    for (size_t i = 0; table && i < table->count; i++)
        text_print(&known, " --%s", table->rows[i].name);
    fail_hint(failure, "--help says what each is for");
    fail(failure, EXIT_USAGE, "%s: unknown: allowed:%s", word, text_string(&known));
    text_free(&known);
    return false;
}

bool arguments_parse(int argc, char **argv, int first, const struct flag *flags, size_t flag_count,
                     const struct option_table *table, void *options, struct failure *failure)
{
    for (int i = first; i < argc; i++) {
        char name[64] = "";
        const char *word = argv[i], *equals = strchr(word, '=');
        size_t length = equals ? (size_t)(equals - word) : strlen(word);
        if (!strncmp(word, "--", 2) && length - 2 < sizeof name)
            snprintf(name, sizeof name, "%.*s", (int)(length - 2), word + 2);
        const struct flag *flag = flag_find(flags, flag_count, name);
        if (!flag && !(table && options_find(table, name)))
            return argument_unknown(word, flags, flag_count, table, failure);
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value)
            return fail(failure, EXIT_USAGE, "%s: found nothing: allowed: a value behind it", name);
        if (flag)
            *flag->value = value;
        else if (!options_set(table, options, name, value, failure))
            return false;
    }
    return true;
}

bool arguments_number(const char *name, const char *text, double minimum, double maximum, double *value,
                      struct failure *failure)
{
    char *end = NULL;
    *value = strtod(text, &end);
    if (!*text || *end || !(*value >= minimum && *value <= maximum))
        return fail(failure, EXIT_USAGE, "%s: found %s: allowed: %g to %g", name, text, minimum, maximum);
    return true;
}

bool arguments_port(const char *name, const char *text, unsigned *port, struct failure *failure)
{
    double value = 0;
    if (!arguments_number(name, text, 0, 65535, &value, failure))
        return false;
    *port = (unsigned)value;
    return (double)*port == value || fail(failure, EXIT_USAGE, "%s: found %s: allowed: integer 0 to 65535", name, text);
}

bool arguments_ports(const char *text, struct port_range *range, struct failure *failure)
{
    char first[8] = "";
    const char *dash = strchr(text, '-');
    if (!dash || (size_t)(dash - text) >= sizeof first)
        return fail(failure, EXIT_USAGE, "ports: found %s: allowed: FIRST-LAST", text);
    memcpy(first, text, (size_t)(dash - text));
    if (!arguments_port("ports", first, &range->first, failure) ||
        !arguments_port("ports", dash + 1, &range->last, failure))
        return false;
    return (range->first > 0 && range->first <= range->last) ||
           fail(failure, EXIT_USAGE, "ports: found %s: allowed: FIRST-LAST within 1-65535", text);
}

bool arguments_full(const char *name, const char *text, bool *full, struct failure *failure)
{
    *full = text && !strcmp(text, "full");
    return !text || *full || !strcmp(text, "summary") ||
           fail(failure, EXIT_USAGE, "%s: found %s: allowed: summary full", name, text);
}
