/* See sizes.h. */
#include "path/sizes.h"

void sizes_begin(struct sizes *sizes, const struct probe *probe)
{
    size_t known = probe_mtu_bytes(probe), heads = probe_heads_bytes(probe);
    *sizes = (struct sizes){.fits = DATAGRAM_HEAD_BYTES,
                            .fails = probe_bytes_max(probe) + 1,
                            .heads_bytes = heads,
                            .limit = "largest_packet"};
    sizes->next = (sizes->fits + sizes->fails) / 2;
    if (known > heads + sizes->fits && known - heads < sizes->fails)
        sizes->next = known - heads;
}

/* Then one more: what was guessed or told is mostly right. Where it is not, by halves. */
static void sizes_fit(struct sizes *sizes)
{
    bool was_one_more = sizes->next == sizes->fits + 1;
    sizes->fits = sizes->next;
    sizes->next = was_one_more ? (sizes->fits + sizes->fails) / 2 : sizes->fits + 1;
    sizes->lost_count = 0;
}

static void sizes_fail(struct sizes *sizes, const char *limit, size_t told_mtu_bytes)
{
    sizes->fails = sizes->next;
    sizes->next = (sizes->fits + sizes->fails) / 2;
    if (told_mtu_bytes > sizes->heads_bytes + sizes->fits && told_mtu_bytes - sizes->heads_bytes < sizes->fails)
        sizes->next = told_mtu_bytes - sizes->heads_bytes;
    sizes->limit = limit;
    sizes->lost_count = 0;
}

void sizes_outcome(struct sizes *sizes, const struct probe *probe, enum probe_end end, size_t try_count)
{
    if (end == PROBE_ANSWERED) {
        sizes_fit(sizes);
    } else if (end == PROBE_TOO_LARGE_HERE) {
        sizes_fail(sizes, "interface", 0);
    } else if (end == PROBE_TOO_LARGE) {
        if (!sizes->told_mtu_bytes || probe->told_mtu_bytes < sizes->told_mtu_bytes) {
            sizes->told_mtu_bytes = probe->told_mtu_bytes;
            sizes->told_by = probe->from;
        }
        sizes_fail(sizes, "told", probe->told_mtu_bytes);
    } else if (++sizes->lost_count >= try_count) {
        sizes->silent_count++;
        sizes_fail(sizes, "silent", 0);
    }
}

bool sizes_found(const struct sizes *sizes)
{
    return sizes->fits + 1 >= sizes->fails;
}
