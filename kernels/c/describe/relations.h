/* What options of a kernel must be to each other, one row each. From the row come the check before a measurement, the
 * words of --help, and the description, by which `hpcq check` refuses the same.
 *
 *   {"thread_count", RELATION_AT_MOST, .other = "flow_count"}
 *   {"buffers", RELATION_ONE_OF, .words = "hot separate", .when = "call", .when_words = "persistent"} */
#ifndef HPCQ_RELATIONS_H
#define HPCQ_RELATIONS_H

#include "describe/options.h"

enum relation_kind {
    RELATION_AT_MOST,       /* `other` at most */
    RELATION_AT_LEAST,      /* factor (0: 1) times `other` (NULL: 1) and more; 0 always */
    RELATION_PRODUCT,       /* its product with `other` is factor at most */
    RELATION_MULTIPLE,      /* a multiple of factor */
    RELATION_ONE_OF,        /* one of `words` */
    RELATION_COUNT_OF_PORTS /* so many from `other` to `last`, which 0 makes 65535; `other` 0: any */
};

struct option_relation {
    const char *option;
    enum relation_kind kind;
    const char *other, *last;
    double factor;
    const char *words;             /* by spaces */
    const char *when, *when_words; /* holds only where this option is one of these words; NULL: always */
};

/* The failure says `name: found: allowed`. */
bool relations_hold(const struct option_table *table, const void *options, struct failure *failure);
void relations_describe(const struct option_table *table, struct text *json); /* a JSON list */
void relations_help(const struct option_table *table, struct text *out);

#endif
