/* See listening.h. The tables: proc(5), /proc/net/tcp and its siblings. */
#include "programs/listening.h"

#include <stdio.h>

enum { STATE_LISTEN = 0x0a, STATE_UNCONNECTED = 0x07 };

static bool table_has(const char *path, unsigned port, unsigned wanted_state)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (!found && fgets(line, sizeof line, file)) {
        unsigned local = 0, state = 0;
        /*  sl: local address:port  remote address:port  state */
        if (sscanf(line, " %*u: %*64[0-9A-Fa-f]:%x %*64[0-9A-Fa-f]:%*x %x", &local, &state) == 2)
            found = local == port && state == wanted_state;
    }
    fclose(file);
    return found;
}

bool listening(unsigned port)
{
    return table_has("/proc/net/tcp", port, STATE_LISTEN) || table_has("/proc/net/tcp6", port, STATE_LISTEN) ||
           table_has("/proc/net/udp", port, STATE_UNCONNECTED) || table_has("/proc/net/udp6", port, STATE_UNCONNECTED);
}
