/* A connection that proves nothing costs a process for at most five seconds, and a place only until it is wanted; only
 * one session measures at a time (a lock that the kernel frees when its holder dies). */
#include "engine/sessions.h"

#include "base/clock.h"
#include "base/portable.h"
#include "base/signals.h"
#include "engine/session.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURN_LIMIT_S = 8 };
static const uint64_t handshake_ns = NS_PER_S;

bool sessions_address(const char *interface, const char *bind_to, struct address *address, struct failure *failure)
{
    if (bind_to)
        return address_parse(bind_to, AF_UNSPEC, address, failure);
    if (interface)
        return address_of_interface(interface, AF_UNSPEC, address, failure);
    return fail(failure, EXIT_USAGE, "found neither --interface nor --bind: allowed: one of them");
}

int sessions_signals(struct failure *failure)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int descriptor = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (descriptor < 0)
        fail_system(failure, "signalfd");
    return descriptor;
}

void sessions_child(pid_t parent)
{
    sigset_t none;
    /* Not SIGTERM: a child that is stopped when its parent dies would stay for ever. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before we asked */
        _exit(1);
    signals_install();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

bool sessions_listen(struct sessions *sessions, struct address *address, struct failure *failure)
{
    sessions->listener = control_socket(address, failure);
    if (sessions->listener < 0 || !socket_bind_range(sessions->listener, true, address, sessions->ports, failure))
        return false;
    fcntl(sessions->listener, F_SETFL, O_NONBLOCK);
    sessions->turn = file_unnamed(failure);
    sessions->signs = mmap(NULL, sizeof *sessions->signs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sessions->signs == MAP_FAILED)
        return fail_system(failure, "mmap");
    sessions->last_busy_ns = clock_now_ns();
    return sessions->turn >= 0;
}

static size_t sessions_oldest(const struct sessions *sessions)
{
    size_t oldest = SESSIONS_MAX;
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (sessions->children[i] && !sessions->signs->proven[i] &&
            (oldest == SESSIONS_MAX || sessions->begun_ns[i] < sessions->begun_ns[oldest]))
            oldest = i;
    return oldest;
}

/* A free place, or that of the oldest which has proved nothing in its time; SESSIONS_MAX: there is none. */
static size_t sessions_place(const struct sessions *sessions)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (!sessions->children[i])
            return i;
    size_t oldest = sessions_oldest(sessions);
    return oldest < SESSIONS_MAX && clock_now_ns() - sessions->begun_ns[oldest] >= handshake_ns ? oldest : SESSIONS_MAX;
}

static bool sessions_measuring(const struct sessions *sessions)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (sessions->children[i] && sessions->signs->measuring[i])
            return true;
    return false;
}

int sessions_descriptor(const struct sessions *sessions)
{
    return !sessions_measuring(sessions) && sessions_place(sessions) < SESSIONS_MAX ? sessions->listener : -1;
}

int sessions_wait_ms(const struct sessions *sessions)
{
    size_t oldest = sessions_oldest(sessions);
    if (sessions_measuring(sessions) || oldest == SESSIONS_MAX || sessions_descriptor(sessions) >= 0)
        return -1;
    return clock_remaining_ms(sessions->begun_ns[oldest] + handshake_ns);
}

/* Whether this host has as many places without proof as one may have. */
static bool sessions_crowded(const struct sessions *sessions, const struct address *host)
{
    size_t count = 0;
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        count += sessions->children[i] && !sessions->signs->proven[i] &&
                 clock_now_ns() - sessions->begun_ns[i] < handshake_ns && address_same(&sessions->hosts[i], host);
    return count >= SESSIONS_OF_ONE_HOST_MAX;
}

struct claim {
    int turn;
    unsigned char *proven, *measuring;
};

/* Waits for the turn to measure. The lock goes with the process, however it ends. */
static bool session_turn(const void *argument)
{
    const struct claim *claim = argument;
    int descriptor = claim->turn;
    *claim->proven = 1;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    signals_alarm(true);
    alarm(TURN_LIMIT_S);
    int rc = fcntl(descriptor, F_SETLKW, &lock);
    alarm(0);
    signals_alarm(false);
    *claim->measuring = rc == 0;
    return rc == 0;
}

static void session_child(struct sessions *sessions, int descriptor, const struct address *peer, pid_t parent,
                          size_t index)
{
    struct claim claim = {.turn = sessions->turn,
                          .proven = &sessions->signs->proven[index],
                          .measuring = &sessions->signs->measuring[index]};
    struct session_place place = {.program = sessions->program,
                                  .interface = sessions->interface,
                                  .programs_path = sessions->programs_path,
                                  .ports = sessions->ports,
                                  .peer = *peer,
                                  .claim = session_turn,
                                  .claim_argument = &claim};
    sessions_child(parent);
    close(sessions->listener);
    /* A range keeps the test socket inside the firewall's hole; one given port is the control channel's own. */
    if (place.ports.first == place.ports.last)
        place.ports = (struct port_range){0, 0};
    struct failure failure = {.state = "hello"};
    enum session_end end = session_serve(descriptor, &place, &sessions->secret, &failure);
    if (end != SESSION_SERVED &&
        (sessions->signs->proven[index] || sessions->signs->refused_count++ < REFUSALS_SAID_MAX)) {
        char host[ADDRESS_TEXT_BYTES];
        address_text(peer, host);
        fprintf(stderr, "error: client %s: %s: %s\n", host, failure.state ? failure.state : "?", failure.message);
    }
    exit((int)end);
}

static void session_evict(struct sessions *sessions, size_t place)
{
    if (!sessions->children[place])
        return;
    kill(sessions->children[place], SIGKILL);
    waitpid(sessions->children[place], NULL, 0);
    sessions->children[place] = 0;
    sessions->child_count--;
}

void sessions_accept(struct sessions *sessions, const int *descriptors, size_t count)
{
    struct address peer = {.length = sizeof peer.storage};
    if (sessions_measuring(sessions)) /* since the listener was looked at */
        return;
    int descriptor = accept4(sessions->listener, (struct sockaddr *)&peer.storage, &peer.length, SOCK_CLOEXEC);
    size_t place = sessions_place(sessions);
    if (descriptor < 0)
        return;
    if (place == SESSIONS_MAX || sessions_crowded(sessions, &peer)) {
        sessions->signs->refused_count++;
        close(descriptor);
        return;
    }
    session_evict(sessions, place);
    sessions->signs->proven[place] = sessions->signs->measuring[place] = 0;
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        for (size_t i = 0; i < count; i++)
            if (descriptors[i] >= 0)
                close(descriptors[i]);
        session_child(sessions, descriptor, &peer, parent, place);
    }
    if (child > 0) {
        sessions->children[place] = child;
        sessions->begun_ns[place] = clock_now_ns();
        sessions->hosts[place] = peer;
        sessions->child_count++;
    }
    close(descriptor);
}

bool sessions_ended(struct sessions *sessions, pid_t child, int status)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        if (sessions->children[i] != child)
            continue;
        sessions->children[i] = 0;
        sessions->child_count--;
        if (!sessions->signs->proven[i])
            return true;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != SESSION_REFUSED)
            sessions->served++;
        sessions->last_busy_ns = clock_now_ns();
        return true;
    }
    return false;
}

bool sessions_working(const struct sessions *sessions)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (sessions->children[i] && sessions->signs->proven[i])
            return true;
    return false;
}

void sessions_signal(const struct sessions *sessions, int number)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (sessions->children[i])
            kill(sessions->children[i], number);
}

void sessions_end(const struct sessions *sessions)
{
    if (sessions->signs && sessions->signs->refused_count > REFUSALS_SAID_MAX)
        fprintf(stderr, "warning: %u connections in all were refused\n", sessions->signs->refused_count);
}
