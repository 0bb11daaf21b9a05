/* See ethtool.h. Requests and structures: include/uapi/linux/ethtool.h. */
#include "evidence/ethtool.h"

#include "evidence/sources.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct device {
    int socket;
    char name[IFNAMSIZ];
    const char *prefix;
};

static int device_ask(const struct device *device, void *request)
{
    struct ifreq call;
    memset(&call, 0, sizeof call);
    memcpy(call.ifr_name, device->name, sizeof call.ifr_name);
    call.ifr_data = request;
    return ioctl(device->socket, SIOCETHTOOL, &call) ? errno : 0;
}

/* Names of drivers hold blanks and colons now and then; here a name is one word. */
static void line_add(const struct device *device, struct text *out, const char *name, const char *value)
{
    text_print(out, "%s", device->prefix);
    size_t from = out->length;
    text_print(out, "%.*s", ETH_GSTRING_LEN, name);
    for (size_t i = from; i < out->length; i++)
        if (out->data[i] == ' ' || out->data[i] == ':' || out->data[i] == '\t')
            out->data[i] = '_';
    text_print(out, " %s\n", value);
}

static void line_number(const struct device *device, struct text *out, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    line_add(device, out, name, text);
}

static uint32_t strings_count(const struct device *device, uint32_t set)
{
    struct ethtool_sset_info *request = memory_new(1, sizeof *request + sizeof(uint32_t));
    request->cmd = ETHTOOL_GSSET_INFO;
    request->sset_mask = (uint64_t)1 << set;
    uint32_t count = device_ask(device, request) || !request->sset_mask ? 0 : request->data[0];
    free(request);
    return count;
}

static struct ethtool_gstrings *strings_get(const struct device *device, uint32_t set, uint32_t count)
{
    struct ethtool_gstrings *strings = memory_new(1, sizeof *strings + (size_t)count * ETH_GSTRING_LEN);
    strings->cmd = ETHTOOL_GSTRINGS;
    strings->string_set = set;
    strings->len = count;
    if (!device_ask(device, strings))
        return strings;
    free(strings);
    return NULL;
}

static int read_statistics(const struct device *device, struct text *out)
{
    uint32_t count = strings_count(device, ETH_SS_STATS);
    if (!count)
        return EOPNOTSUPP;
    struct ethtool_gstrings *names = strings_get(device, ETH_SS_STATS, count);
    if (!names)
        return EOPNOTSUPP;
    struct ethtool_stats *values = memory_new(1, sizeof *values + (size_t)count * sizeof(uint64_t));
    values->cmd = ETHTOOL_GSTATS;
    values->n_stats = count;
    int error = device_ask(device, values);
    for (uint32_t i = 0; !error && i < count && i < values->n_stats; i++)
        line_number(device, out, (const char *)names->data + (size_t)i * ETH_GSTRING_LEN, values->data[i]);
    free(names);
    free(values);
    return error;
}

static int read_driver(const struct device *device, struct text *out)
{
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    int error = device_ask(device, &info);
    if (error)
        return error;
    line_add(device, out, "driver", info.driver);
    line_add(device, out, "driver_version", info.version);
    line_add(device, out, "firmware", info.fw_version);
    line_add(device, out, "bus", info.bus_info);
    return 0;
}

static int read_coalescing(const struct device *device, struct text *out)
{
    struct ethtool_coalesce info = {.cmd = ETHTOOL_GCOALESCE};
    int error = device_ask(device, &info);
    if (error)
        return error;
    line_number(device, out, "rx_usecs", info.rx_coalesce_usecs);
    line_number(device, out, "rx_frames", info.rx_max_coalesced_frames);
    line_number(device, out, "tx_usecs", info.tx_coalesce_usecs);
    line_number(device, out, "tx_frames", info.tx_max_coalesced_frames);
    line_number(device, out, "adaptive_rx", info.use_adaptive_rx_coalesce);
    line_number(device, out, "adaptive_tx", info.use_adaptive_tx_coalesce);
    return 0;
}

static int read_rings(const struct device *device, struct text *out)
{
    struct ethtool_ringparam info = {.cmd = ETHTOOL_GRINGPARAM};
    int error = device_ask(device, &info);
    if (error)
        return error;
    line_number(device, out, "rx", info.rx_pending);
    line_number(device, out, "rx_max", info.rx_max_pending);
    line_number(device, out, "tx", info.tx_pending);
    line_number(device, out, "tx_max", info.tx_max_pending);
    return 0;
}

static int read_channels(const struct device *device, struct text *out)
{
    struct ethtool_channels info = {.cmd = ETHTOOL_GCHANNELS};
    int error = device_ask(device, &info);
    if (error)
        return error;
    line_number(device, out, "rx", info.rx_count);
    line_number(device, out, "tx", info.tx_count);
    line_number(device, out, "combined", info.combined_count);
    line_number(device, out, "combined_max", info.max_combined);
    return 0;
}

static int read_pause(const struct device *device, struct text *out)
{
    struct ethtool_pauseparam info = {.cmd = ETHTOOL_GPAUSEPARAM};
    int error = device_ask(device, &info);
    if (error)
        return error;
    line_number(device, out, "autonegotiation", info.autoneg);
    line_number(device, out, "rx", info.rx_pause);
    line_number(device, out, "tx", info.tx_pause);
    return 0;
}

/* Speeds of link modes by their bit, from `first` to `last` (enum ethtool_link_mode_bit_indices; headers of older
 * systems end earlier). What stands between is no speed: ports, pause, error correction. */
static const struct {
    unsigned first, last, mbps;
} modes[] = {
    {0, 1, 10},       {2, 3, 100},        {4, 5, 1000},       {12, 12, 10000},    {15, 15, 2500},  {17, 17, 1000},
    {18, 20, 10000},  {21, 22, 20000},    {23, 26, 40000},    {27, 30, 56000},    {31, 33, 25000}, {34, 35, 50000},
    {36, 39, 100000}, {40, 40, 50000},    {41, 41, 1000},     {42, 46, 10000},    {47, 47, 2500},  {48, 48, 5000},
    {52, 56, 50000},  {57, 61, 100000},   {62, 66, 200000},   {67, 67, 100},      {68, 68, 1000},  {69, 73, 400000},
    {75, 79, 100000}, {80, 84, 200000},   {85, 89, 400000},   {90, 91, 100},      {92, 92, 10},    {93, 98, 800000},
    {99, 101, 10},    {103, 108, 200000}, {109, 114, 400000}, {115, 120, 800000},
};

uint64_t ethtool_speed_bps(const uint32_t *mask, unsigned word_count)
{
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        for (unsigned bit = modes[i].first; bit <= modes[i].last && bit / 32 < word_count; bit++)
            if ((mask[bit / 32] >> bit % 32 & 1) && modes[i].mbps > most)
                most = modes[i].mbps;
    return most * 1000000;
}

/* The fastest that this end can, and that the other end says it can: three masks of modes, after a question of how many
 * words each has. */
static void read_link_modes(const struct device *device, struct text *out)
{
    struct ethtool_link_settings question = {.cmd = ETHTOOL_GLINKSETTINGS};
    if (device_ask(device, &question) || question.link_mode_masks_nwords >= 0)
        return;
    unsigned words = (unsigned)-question.link_mode_masks_nwords;
    struct ethtool_link_settings *info = memory_new(1, sizeof *info + (size_t)3 * words * sizeof(uint32_t));
    info->cmd = ETHTOOL_GLINKSETTINGS;
    info->link_mode_masks_nwords = (__s8)words;
    if (!device_ask(device, info)) {
        uint64_t own = ethtool_speed_bps(info->link_mode_masks, words),
                 partner = ethtool_speed_bps(info->link_mode_masks + 2 * (size_t)words, words);
        if (own)
            line_number(device, out, "speed_maximum_bps", own);
        if (partner)
            line_number(device, out, "partner_speed_maximum_bps", partner);
    }
    free(info);
}

static int read_link(const struct device *device, struct text *out)
{
    struct ethtool_cmd info = {.cmd = ETHTOOL_GSET};
    struct ethtool_value link = {.cmd = ETHTOOL_GLINK};
    int error = device_ask(device, &link);
    if (!error)
        line_number(device, out, "up", link.data);
    read_link_modes(device, out);
    if (device_ask(device, &info))
        return error;
    uint32_t speed = (uint32_t)info.speed_hi << 16 | info.speed; /* the header's own shifts an int too far */
    if (speed != (uint32_t)SPEED_UNKNOWN)
        line_number(device, out, "speed_bps", (uint64_t)speed * 1000000);
    line_add(device, out, "duplex",
             info.duplex == DUPLEX_FULL   ? "full"
             : info.duplex == DUPLEX_HALF ? "half"
                                          : "unknown");
    line_number(device, out, "autonegotiation", info.autoneg);
    return 0;
}

static int read_features(const struct device *device, struct text *out)
{
    uint32_t count = strings_count(device, ETH_SS_FEATURES), blocks = (count + 31) / 32;
    struct ethtool_gstrings *names = count ? strings_get(device, ETH_SS_FEATURES, count) : NULL;
    if (!names)
        return EOPNOTSUPP;
    struct ethtool_gfeatures *values =
        memory_new(1, sizeof *values + (size_t)blocks * sizeof(struct ethtool_get_features_block));
    values->cmd = ETHTOOL_GFEATURES;
    values->size = blocks;
    int error = device_ask(device, values);
    /* Only what a person could switch: the rest says nothing about this node. */
    for (uint32_t i = 0; !error && i < count; i++) {
        const char *name = (const char *)names->data + (size_t)i * ETH_GSTRING_LEN;
        const struct ethtool_get_features_block *block = &values->features[i / 32];
        uint32_t bit = 1U << (i % 32);
        if (*name && (block->available & bit) && !(block->never_changed & bit))
            line_number(device, out, name, (block->active & bit) != 0);
    }
    free(names);
    free(values);
    return error;
}

static const struct {
    const char *name;
    int (*read)(const struct device *device, struct text *out);
} sections[ETHTOOL_SECTION_COUNT] = {
    [ETHTOOL_STATISTICS] = {"statistics", read_statistics},
    [ETHTOOL_DRIVER] = {"driver", read_driver},
    [ETHTOOL_COALESCING] = {"coalescing", read_coalescing},
    [ETHTOOL_RINGS] = {"ring", read_rings},
    [ETHTOOL_CHANNELS] = {"channels", read_channels},
    [ETHTOOL_PAUSE] = {"pause", read_pause},
    [ETHTOOL_LINK] = {"link", read_link},
    [ETHTOOL_FEATURES] = {"offload", read_features},
};

const char *ethtool_section_name(enum ethtool_section section)
{
    return sections[section].name;
}

static int ethtool_recorded(const char *root, const char *interface, enum ethtool_section section, const char *prefix,
                            struct text *out)
{
    char path[128];
    struct text text = {0};
    struct word line;
    snprintf(path, sizeof path, "ethtool/%s.%s", interface, sections[section].name);
    int error = source_read_file(root, path, &text);
    const char *at = text_string(&text);
    while (line_next(&at, &line))
        text_print(out, "%s%.*s\n", prefix, (int)line.length, line.at);
    text_free(&text);
    return error;
}

int ethtool_read(const char *root, const char *interface, enum ethtool_section section, const char *prefix,
                 struct text *out)
{
    if (root[0])
        return ethtool_recorded(root, interface, section, prefix, out);
    struct device device = {.prefix = prefix};
    snprintf(device.name, sizeof device.name, "%s", interface);
    device.socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (device.socket < 0)
        return errno;
    int error = sections[section].read(&device, out);
    close(device.socket);
    return error;
}
