/* A kernel's options: one row each. From the row come the flag, the help, the range check, the wire form, the echo and
 * the description; the row itself points at the field of the kernel's option struct.
 *
 *   OPTION_INTEGER_ROW(struct tcp_stream_options, message_bytes, 131072, 1, 67108864, "bytes given to one send()")
 */
#ifndef HPCQ_OPTIONS_H
#define HPCQ_OPTIONS_H

#include "base/fail.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

enum option_type { OPTION_INTEGER, OPTION_NUMBER, OPTION_BOOLEAN, OPTION_CHOICE, OPTION_NAME, OPTION_CPUS };

enum { OPTION_NAME_BYTES = 16 }; /* with the NUL: as TCP_CA_NAME_MAX of linux/tcp.h */
enum { OPTION_CPUS_BYTES = 64 }; /* with the NUL: a list as 0-7,16-23 */

struct option_row {
    const char *name; /* of the field; its suffix is the unit */
    enum option_type type;
    size_t offset;
    double standard, minimum, maximum; /* default and range; integers stay below 2^53; a text's default is `system` */
    const char *const *choices;        /* NULL-terminated; the field holds the index */
    const char *help;
};

#define OPTION_INTEGER_ROW(type, field, standard, minimum, maximum, help)                                              \
    {#field, OPTION_INTEGER, offsetof(type, field), standard, minimum, maximum, NULL, help}
#define OPTION_NUMBER_ROW(type, field, standard, minimum, maximum, help)                                               \
    {#field, OPTION_NUMBER, offsetof(type, field), standard, minimum, maximum, NULL, help}
#define OPTION_BOOLEAN_ROW(type, field, standard, help)                                                                \
    {#field, OPTION_BOOLEAN, offsetof(type, field), standard, 0, 1, NULL, help}
#define OPTION_CHOICE_ROW(type, field, choices, help)                                                                  \
    {#field, OPTION_CHOICE, offsetof(type, field), 0, 0, 0, choices, help}

/* Where a kernel wants a default that differs from the one in a shared table. */
struct option_default {
    const char *name;
    double standard;
};

struct option_table {
    const struct option_row *rows;
    size_t count;
    size_t struct_bytes;
    const struct option_default *defaults; /* ends with a NULL name; NULL: none */
    const struct option_relation *relations;
    size_t relation_count;
};

void options_default(const struct option_table *table, void *options);
const struct option_row *options_find(const struct option_table *table, const char *name);
/* Sets one option from text. The failure says `name: found: allowed`. */
bool options_set(const struct option_table *table, void *options, const char *name, const char *value,
                 struct failure *failure);
double option_load(const struct option_row *row, const void *options); /* a number, a choice's index; no name */
void options_value(const struct option_row *row, const void *options, struct text *out);     /* the wire form */
void options_echo(const struct option_table *table, const void *options, struct text *json); /* one JSON object */
void options_describe(const struct option_table *table, struct text *json);                  /* a JSON list */
void options_help(const struct option_table *table, struct text *out);

const char *unit_of(const char *name); /* the unit that a name ends in, or NULL */

#endif
