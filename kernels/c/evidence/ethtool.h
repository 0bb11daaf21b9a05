/* What a network driver tells through SIOCETHTOOL, as `name value` lines; a recorded tree has the same text in
 * ethtool/<interface>.<section>. */
#ifndef HPCQ_ETHTOOL_H
#define HPCQ_ETHTOOL_H

#include "base/text.h"

enum ethtool_section {
    ETHTOOL_STATISTICS,
    ETHTOOL_DRIVER,
    ETHTOOL_COALESCING,
    ETHTOOL_RINGS,
    ETHTOOL_CHANNELS,
    ETHTOOL_PAUSE,
    ETHTOOL_LINK,
    ETHTOOL_FEATURES,
    ETHTOOL_SECTION_COUNT
};

/* The fastest link mode of a mask; 0: none that is a speed. */
uint64_t ethtool_speed_bps(const uint32_t *mask, unsigned word_count);
const char *ethtool_section_name(enum ethtool_section section);
/* Each line begins with `prefix`. Returns 0 or errno. */
int ethtool_read(const char *root, const char *interface, enum ethtool_section section, const char *prefix,
                 struct text *out);

#endif
