/* See placed.h. */
#include "base/placed.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_BYTES_USUAL = 2 << 20 };

const char *const page_choices[] = {"system", "small", "huge", NULL};

static size_t huge_bytes(void)
{
    unsigned long bytes = 0;
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "r");
    bool known = file && fscanf(file, "%lu", &bytes) == 1 && bytes >= PLACED_PAGE_BYTES && !(bytes & (bytes - 1));
    if (file)
        fclose(file);
    return known ? bytes : HUGE_BYTES_USUAL;
}

struct placed placed_new(size_t bytes, size_t offset_bytes, enum page_choice pages)
{
    /* Not a byte more than asked for, or an address sanitizer would miss an overrun; huge pages have to be whole. */
    size_t page = pages == PAGES_HUGE ? huge_bytes() : PLACED_PAGE_BYTES, whole = offset_bytes + (bytes ? bytes : 1);
    size_t rounded = (whole + page - 1) / page * page;
    void *base = NULL;
    if (posix_memalign(&base, page, pages == PAGES_HUGE ? rounded : whole)) {
        fputs("error: out of memory\n", stderr);
        exit(4);
    }
    /* A system without transparent huge pages refuses both; placed_page_bytes() then says what there is. */
    if (pages != PAGES_SYSTEM)
        madvise(base, rounded, pages == PAGES_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return (struct placed){.base = base, .at = (char *)base + offset_bytes, .bytes = bytes};
}

void placed_free(struct placed *placed)
{
    free(placed->base);
    *placed = (struct placed){0};
}

size_t placed_offset_bytes(const struct placed *placed)
{
    return (uintptr_t)placed->at % PLACED_PAGE_BYTES;
}

double placed_page_bytes(const struct placed *placed)
{
    char line[512];
    unsigned long long first, last, value, page_kib = 0, huge_kib = 0, resident_kib = 0;
    uintptr_t at = (uintptr_t)placed->at;
    bool here = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%llx-%llx ", &first, &last) == 2) {
            if (here)
                break;
            here = at >= first && at < last;
        } else if (here && sscanf(line, "KernelPageSize: %llu", &value) == 1) {
            page_kib = value;
        } else if (here && sscanf(line, "Rss: %llu", &value) == 1) {
            resident_kib = value;
        } else if (here && sscanf(line, "AnonHugePages: %llu", &value) == 1) {
            huge_kib = value;
        }
    }
    if (file)
        fclose(file);
    if (!page_kib)
        return (double)NAN;
    return huge_kib && 2 * huge_kib >= resident_kib ? (double)huge_bytes() : (double)page_kib * 1024;
}
