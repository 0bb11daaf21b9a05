/* The server: sessions, a line that says where it listens, and an end when it was forgotten. See sessions.h. */
#include "engine/server.h"

#include "base/clock.h"
#include "describe/arguments.h"
#include "engine/sessions.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

struct server {
    struct sessions sessions;
    double idle_timeout_s;
    uint64_t session_limit; /* 0: no limit */
    int signals;
    bool stop;
};

static bool server_arguments(struct server *server, int argc, char **argv, struct address *address,
                             struct failure *failure)
{
    const char *interface = NULL, *bind_to = NULL, *port = NULL, *ports = NULL, *secret = NULL, *sessions = NULL,
               *idle = NULL;
    const struct flag flags[] = {{"interface", &interface}, {"bind", &bind_to},
                                 {"port", &port},           {"ports", &ports},
                                 {"secret-file", &secret},  {"sessions", &sessions},
                                 {"idle-timeout-s", &idle}, {"programs-file", &server->sessions.programs_path}};
    double number = 0;
    if (!arguments_parse(argc, argv, 2, flags, sizeof flags / sizeof flags[0], NULL, NULL, failure))
        return false;
    if (!secret)
        return fail(failure, EXIT_USAGE, "secret-file: found nothing: allowed: a file of mode 0600");
    if (port && !arguments_port("port", port, &server->sessions.ports.first, failure))
        return false;
    server->sessions.ports.last = server->sessions.ports.first;
    if (ports && !arguments_ports(ports, &server->sessions.ports, failure))
        return false;
    if (sessions && !arguments_number("sessions", sessions, 0, 1e9, &number, failure))
        return false;
    server->session_limit = (uint64_t)number;
    server->idle_timeout_s = 600; /* a server that was forgotten does not stay on a node for ever */
    if (idle && !arguments_number("idle-timeout-s", idle, 0, 1e9, &server->idle_timeout_s, failure))
        return false;
    server->sessions.interface = interface;
    return secret_read(secret, &server->sessions.secret, failure) &&
           sessions_address(interface, bind_to, address, failure);
}

bool server_print_ready(const char *named, const struct address *address, struct failure *failure)
{
    struct text line = {0};
    struct utsname system;
    char host[ADDRESS_TEXT_BYTES], interface[IF_NAMESIZE];
    address_text(address, host);
    address_interface(address, interface);
    uname(&system);
    json_open(&line, '{');
    json_key(&line, "ready");
    json_open(&line, '{');
    json_key(&line, "address");
    json_string(&line, host);
    json_key(&line, "port");
    json_unsigned(&line, address_port(address));
    json_key(&line, "interface");
    json_string(&line, named ? named : interface[0] ? interface : NULL);
    json_key(&line, "node");
    system.nodename[strcspn(system.nodename, ".")] = '\0';
    json_string(&line, system.nodename);
    json_close(&line, '}');
    json_close(&line, '}');
    text_add(&line, "\n", 1);
    bool ok = text_write(&line, 0, STDOUT_FILENO) || fail_system(failure, "write of where it listens");
    text_free(&line);
    return ok;
}

static void server_reap(struct server *server)
{
    struct signalfd_siginfo signal;
    while (read(server->signals, &signal, sizeof signal) == (ssize_t)sizeof signal)
        if (signal.ssi_signo != SIGCHLD)
            server->stop = true;
    int status = 0;
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;)
        sessions_ended(&server->sessions, child, status);
}

static void server_end_children(struct server *server)
{
    sessions_signal(&server->sessions, SIGTERM);
    uint64_t deadline = clock_now_ns() + NS_PER_S;
    while (server->sessions.child_count && clock_remaining_ms(deadline)) {
        struct pollfd poller = {.fd = server->signals, .events = POLLIN};
        poll(&poller, 1, clock_remaining_ms(deadline));
        server_reap(server);
    }
    sessions_signal(&server->sessions, SIGKILL);
}

static bool server_loop(struct server *server, struct failure *failure)
{
    struct sessions *sessions = &server->sessions;
    while (!server->stop && (!server->session_limit || sessions->served < server->session_limit)) {
        int wait_ms = -1;
        if (server->idle_timeout_s > 0 && !sessions_working(sessions)) {
            wait_ms = clock_remaining_ms(sessions->last_busy_ns + clock_ns_from_s(server->idle_timeout_s));
            if (!wait_ms)
                return fail(failure, EXIT_PEER, "no client for %g s", server->idle_timeout_s);
        }
        int place_ms = sessions_wait_ms(sessions);
        if (place_ms >= 0 && (wait_ms < 0 || place_ms < wait_ms))
            wait_ms = place_ms;
        struct pollfd pollers[2] = {{.fd = server->signals, .events = POLLIN},
                                    {.fd = sessions_descriptor(sessions), .events = POLLIN}};
        if (poll(pollers, 2, wait_ms) < 0 && errno != EINTR)
            return fail_system(failure, "poll");
        if (pollers[0].revents)
            server_reap(server);
        if (pollers[1].revents)
            sessions_accept(sessions, &server->signals, 1);
    }
    return true;
}

int server_main(const struct program *program, int argc, char **argv)
{
    struct server server = {.sessions = {.program = program, .listener = -1, .turn = -1}, .signals = -1};
    struct failure failure = {.state = "server"};
    struct address address;
    bool ok = server_arguments(&server, argc, argv, &address, &failure) &&
              (server.signals = sessions_signals(&failure)) >= 0 &&
              sessions_listen(&server.sessions, &address, &failure);
    if (ok) {
        ok = server_print_ready(server.sessions.interface, &address, &failure) && server_loop(&server, &failure);
        server_end_children(&server);
        sessions_end(&server.sessions);
    }
    secret_wipe(&server.sessions.secret);
    if (!ok)
        fail_print(&failure);
    return ok ? EXIT_MEASURED : (int)failure.exit_code;
}
