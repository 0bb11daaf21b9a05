/* Memory whose place in its page, and whose pages, are chosen. The kernel's copies between a socket and a buffer that
 * begins amid a cache line are slower on some processors, by half on an AMD EPYC: where malloc() happened to put a
 * buffer would decide what is measured. */
#ifndef HPCQ_PLACED_H
#define HPCQ_PLACED_H

#include <stddef.h>

enum { PLACED_PAGE_BYTES = 4096 };

enum page_choice { PAGES_SYSTEM, PAGES_SMALL, PAGES_HUGE };
extern const char *const page_choices[]; /* NULL-terminated */

struct placed {
    char *base, *at;
    size_t bytes; /* from `at` on */
};

/* Begins offset_bytes after the beginning of a page; nothing is written yet. Or exit 4. */
struct placed placed_new(size_t bytes, size_t offset_bytes, enum page_choice pages);
void placed_free(struct placed *placed);
/* Where it begins in its page, read from the address itself. */
size_t placed_offset_bytes(const struct placed *placed);
/* The pages it lies in once it is written, as the system tells of its mapping; NAN where it does not. */
double placed_page_bytes(const struct placed *placed);

#endif
