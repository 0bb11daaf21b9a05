/* The table of socket_options.h at work. */
#include "kernels/socket_options.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KIND_ANY = 0 };

/* Of Linux 5.6 (the protocol) and 5.16 (what it tells), include/uapi/linux/mptcp.h; MPTCP_INFO grows at its end. */
enum { MPTCP_PROTOCOL = 262, MPTCP_LEVEL = 284, MPTCP_INFORMATION = 1, MPTCP_FELL_BACK = 1 };
struct mptcp_information {
    uint8_t more_subflow_count, others[5];
    uint32_t flags;
};

struct socket_row {
    const char *name;
    enum option_type type;
    size_t offset;
    int kind; /* KIND_ANY, SOCK_STREAM or SOCK_DGRAM */
    int level, option, level6, option6;
    enum socket_moment moment;
    int scale;
    enum socket_grant grant;
};

#define SOCKET_ROW(kind, field, type, minimum, maximum, level, option, level6, option6, moment, scale, grant, help)    \
    {#field, type, offsetof(struct socket_settings, field), kind, level, option, level6, option6, moment, scale, grant},

static const struct socket_row rows[] = {SOCKET_ROWS_ANY(SOCKET_ROW, KIND_ANY) SOCKET_ROWS_TCP(SOCKET_ROW, SOCK_STREAM)
                                             SOCKET_ROWS_UDP(SOCKET_ROW, SOCK_DGRAM)};

static bool row_fits(const struct socket_row *row, int kind)
{
    return row->kind == KIND_ANY || row->kind == kind;
}

static int64_t row_asked(const struct socket_row *row, const struct socket_settings *settings)
{
    int64_t value;
    memcpy(&value, (const char *)settings + row->offset, sizeof value);
    return value;
}

static const char *row_text(const struct socket_row *row, const struct socket_settings *settings)
{
    return (const char *)settings + row->offset;
}

/* which: available, or allowed to those who are not root. */
static void known_controls(const char *which, char *known, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/sys/net/ipv4/tcp_%s_congestion_control", which);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(known, (int)bytes, file))
        snprintf(known, bytes, "what the kernel has loaded");
    if (file)
        fclose(file);
    known[strcspn(known, "\n")] = '\0';
}

static void known_devices(char *known, size_t bytes)
{
    struct if_nameindex *list = if_nameindex();
    size_t length = 0;
    for (const struct if_nameindex *one = list; one && one->if_index && length < bytes; one++)
        length += (size_t)snprintf(known + length, bytes - length, "%s%s", length ? " " : "", one->if_name);
    if (list)
        if_freenameindex(list);
}

/* The name of an option that both ends have, or of this end's own, and its value. */
static const char *own_text(const struct run *run, const struct socket_row *row, const struct socket_settings *settings,
                            const char **name)
{
    const char *own = run->is_server ? settings->server_bind_device : settings->client_bind_device;
    bool is_own = row->level == SOL_SOCKET && row->option == SO_BINDTODEVICE && strcmp(own, "system");
    *name = !is_own ? row->name : run->is_server ? "server_bind_device" : "client_bind_device";
    return is_own ? own : row_text(row, settings);
}

/* What this end's system does not take (errno), and why where it is known. */
static bool row_refused(struct run *run, const char *name, const char *found, bool mptcp)
{
    int error = errno;
    const char *end = run->is_server ? "server" : "client";
    if (mptcp && (error == EOPNOTSUPP || error == ENOPROTOOPT))
        fail_hint(&run->failure, "this system's Multipath TCP has no %s: leave it out, or mptcp", name);
    else if (error == EPERM || error == EACCES)
        fail_hint(&run->failure, "this needs a right that the %s's process lacks (CAP_NET_ADMIN or CAP_NET_RAW)", end);
    return fail(&run->failure, EXIT_USAGE,
                "%s: found %s: allowed on this %s: what its system takes, which says: %s (%s)", name, found, end,
                strerror(error), fail_errno_name(error));
}

static bool row_number_refused(struct run *run, const struct socket_row *row, int64_t asked, bool mptcp)
{
    char found[24];
    int error = errno;
    snprintf(found, sizeof found, "%lld", (long long)asked);
    errno = error;
    return row_refused(run, row->name, found, mptcp);
}

static bool set_text(struct run *run, int descriptor, const struct socket_row *row,
                     const struct socket_settings *settings)
{
    char known[256] = "";
    const char *name, *text = own_text(run, row, settings, &name);
    const char *end = run->is_server ? "server" : "client";
    if (!strcmp(text, "system") || !setsockopt(descriptor, row->level, row->option, text, (socklen_t)strlen(text)))
        return true;
    if (row->option == TCP_CONGESTION && row->level == IPPROTO_TCP && errno == EPERM) {
        known_controls("allowed", known, sizeof known);
        fail_hint(&run->failure, "an administrator allows more with net.ipv4.tcp_allowed_congestion_control");
    } else if (errno == ENODEV) {
        known_devices(known, sizeof known);
    } else if (errno == ENOENT) {
        known_controls("available", known, sizeof known);
        fail_hint(&run->failure, "an administrator loads one with `modprobe tcp_%s`", text);
    } else {
        return row_refused(run, name, text, settings->mptcp);
    }
    return fail(&run->failure, EXIT_USAGE, "%s: found %s: allowed on this %s: system %s", name, text, end, known);
}

static bool set_rate(int descriptor, const struct socket_row *row, int64_t asked)
{
    uint64_t bytes_per_s = (uint64_t)(asked + 7) / 8;
    return !setsockopt(descriptor, row->level, row->option, &bytes_per_s, sizeof bytes_per_s);
}

/* Only a rate that was asked for: the system's own is no number, but no limit. */
static void granted_rate(struct run *run, int descriptor, const struct socket_row *row, int64_t asked)
{
    uint64_t bytes_per_s = 0;
    socklen_t length = sizeof bytes_per_s;
    if (!asked || getsockopt(descriptor, row->level, row->option, &bytes_per_s, &length))
        return;
    run_grant_number(run, row->name, (double)bytes_per_s * 8);
    if (bytes_per_s != (uint64_t)(asked + 7) / 8)
        run_warn(run, "option_not_granted", "%s: %s: asked for %lld, granted %.0f",
                 run->is_server ? "server" : "client", row->name, (long long)asked, (double)bytes_per_s * 8);
}

static int level_of(const struct socket_row *row, int family)
{
    return family == AF_INET6 ? row->level6 : row->level;
}

static int option_of(const struct socket_row *row, int family)
{
    return family == AF_INET6 ? row->option6 : row->option;
}

static bool row_apply(struct run *run, int descriptor, const struct socket_row *row,
                      const struct socket_settings *settings)
{
    int family = run->local.storage.ss_family;
    if (row->type == OPTION_NAME)
        return set_text(run, descriptor, row, settings);
    int64_t asked = row_asked(row, settings);
    int value = row->grant == GRANT_RATE ? 0 : (int)asked * row->scale;
    return !asked ||
           (row->grant == GRANT_RATE
                ? set_rate(descriptor, row, asked)
                : !setsockopt(descriptor, level_of(row, family), option_of(row, family), &value, sizeof value)) ||
           row_number_refused(run, row, asked, settings->mptcp);
}

bool socket_options_apply(struct run *run, int descriptor, const struct socket_settings *settings, int kind,
                          enum socket_moment moment)
{
    for (size_t i = 0; i < ROW_COUNT(rows); i++)
        if (row_fits(&rows[i], kind) && rows[i].moment == moment && !row_apply(run, descriptor, &rows[i], settings))
            return false;
    return true;
}

static const char *device_of(const char *own, const char *both)
{
    return strcmp(own, "system") ? own : both;
}

bool socket_unreached(struct run *run, const struct socket_settings *settings)
{
    struct failure found = run->failure;
    const char *client = device_of(settings->client_bind_device, settings->bind_device);
    const char *server = device_of(settings->server_bind_device, settings->bind_device);
    if (found.exit_code != EXIT_PEER || (!strcmp(client, "system") && !strcmp(server, "system")))
        return false;
    run->failure.failed = false;
    run->failure.hint[0] = '\0';
    fail_hint(&run->failure, "`ip route get` shows by which interface an end reaches the other's address");
    return fail(&run->failure, EXIT_PEER,
                "bind_device: found %s on the client, %s on the server: allowed: interfaces by which the ends reach "
                "each other: %.200s",
                client, server, found.message);
}

static void granted_number(struct run *run, const struct socket_row *row, int64_t asked, int64_t value)
{
    if (row->type == OPTION_BOOLEAN)
        run_grant_boolean(run, row->name, value == row->scale || (row->scale == 1 && value > 0));
    else
        run_grant_number(run, row->name, (double)value / row->scale);
    int64_t least = row->grant == GRANT_BUFFER ? 2 * asked : asked * row->scale;
    if (asked && row->grant != GRANT_AT_MOST && value < least)
        run_warn(run, row->grant == GRANT_BUFFER ? "buffer_clipped" : "option_not_granted",
                 "%s: %s: asked for %lld%s, granted %lld", run->is_server ? "server" : "client", row->name,
                 (long long)asked, row->grant == GRANT_BUFFER ? " (doubled by the system)" : "",
                 (long long)(value / row->scale));
}

int socket_tcp_new(struct run *run, const struct address *address, const struct socket_settings *settings)
{
    int descriptor =
        settings->mptcp ? socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, MPTCP_PROTOCOL) : -1;
    return descriptor >= 0 ? descriptor : socket_new(address, SOCK_STREAM, &run->failure);
}

bool socket_is_mptcp(int descriptor)
{
    int protocol = IPPROTO_TCP;
    socklen_t length = sizeof protocol;
    return !getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) && protocol == MPTCP_PROTOCOL;
}

/* Why a connection is plain TCP. NULL: it is none. */
static const char *mptcp_refusal(int descriptor, struct mptcp_information *information)
{
    bool asks = socket_is_mptcp(descriptor);
    socklen_t length = sizeof *information;
    memset(information, 0, sizeof *information);
    int error = asks && getsockopt(descriptor, MPTCP_LEVEL, MPTCP_INFORMATION, information, &length) ? errno : 0;
    if (asks && !error && !(information->flags & MPTCP_FELL_BACK))
        return NULL;
    if (error && error != EOPNOTSUPP)
        return "this system does not tell whether it is more (MPTCP_INFO, Linux 5.16)";
    if (asks)
        return "the peer or the network has none";
    int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, MPTCP_PROTOCOL);
    if (probe >= 0) { /* accepted by a listener of MPTCP, from a client that did not ask for it */
        close(probe);
        return "the peer or the network has none";
    }
    return errno == ENOPROTOOPT ? "net.mptcp.enabled is 0" : "this system has none";
}

static void mptcp_granted(struct run *run, int descriptor)
{
    struct mptcp_information information;
    int listens = 0;
    socklen_t length = sizeof listens;
    if (!getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) && listens)
        return; /* no connection */
    const char *refusal = mptcp_refusal(descriptor, &information);
    run_grant_boolean(run, "mptcp", !refusal);
    if (!refusal)
        run_grant_number(run, "mptcp_subflow_count", information.more_subflow_count + 1);
    else
        run_warn(run, "option_not_granted", "%s: mptcp: asked for true, granted false: plain TCP, for %s",
                 run->is_server ? "server" : "client", refusal);
}

void socket_options_granted(struct run *run, int descriptor, const struct socket_settings *settings, int kind)
{
    int family = run->local.storage.ss_family;
    struct address own;
    if (settings->source_port_first_no && !run->is_server && address_of_socket(descriptor, &own))
        run_grant_number(run, "source_port_no", address_port(&own));
    if (kind == SOCK_STREAM && settings->mptcp)
        mptcp_granted(run, descriptor);
    for (size_t i = 0; i < ROW_COUNT(rows); i++) {
        char text[32] = "";
        int value = 0;
        bool is_text = rows[i].type == OPTION_NAME;
        if (rows[i].grant == GRANT_RATE) {
            if (row_fits(&rows[i], kind))
                granted_rate(run, descriptor, &rows[i], row_asked(&rows[i], settings));
            continue;
        }
        socklen_t length = is_text ? sizeof text - 1 : sizeof value;
        if (!row_fits(&rows[i], kind) || getsockopt(descriptor, level_of(&rows[i], family), option_of(&rows[i], family),
                                                    is_text ? (void *)text : (void *)&value, &length))
            continue;
        if (is_text && text[0]) /* no device: bound to none */
            run_grant_text(run, rows[i].name, text);
        else if (!is_text)
            granted_number(run, &rows[i], row_asked(&rows[i], settings), value);
    }
}
