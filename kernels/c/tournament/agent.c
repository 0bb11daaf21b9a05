/* An agent serves sessions as the server does, and is told by the conductor when to be a client. It measures in forked
 * processes of its own code; nothing is executed but what the programs file of its own node names.
 *
 *   agent                                              conductor
 *     (handshake: both know the secret)
 *     here {node, address, port, build, facts}    ->
 *                                                 <-     play {no, kernel, to, port, timeout, every option}
 *     result {no, rc, line, evidence}             ->
 *                                                 <-     ping {no}                  only when a result is overdue
 *     pong {no}                                   ->
 *                                                 <-     stop {}                    give up what is in hand
 *                                                 <-     end {}
 */
#include "tournament/agent.h"

#include "base/clock.h"
#include "describe/arguments.h"
#include "engine/sessions.h"
#include "facts/facts.h"
#include "tournament/agent_play.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

struct agent {
    struct sessions sessions;
    struct control control;
    struct play play;
    const char *to, *secret_path;
    unsigned port;
    double idle_timeout_s;
    char node[256];
    int signals;
    bool ended;
};

static bool agent_arguments(struct agent *agent, int argc, char **argv, struct address *address,
                            struct failure *failure)
{
    const char *bind_to = NULL, *port = NULL, *ports = NULL, *idle = NULL, *node = NULL;
    const struct flag flags[] = {{"to", &agent->to},
                                 {"port", &port},
                                 {"secret-file", &agent->secret_path},
                                 {"interface", &agent->sessions.interface},
                                 {"bind", &bind_to},
                                 {"ports", &ports},
                                 {"node", &node},
                                 {"idle-timeout-s", &idle},
                                 {"programs-file", &agent->sessions.programs_path}};
    if (!arguments_parse(argc, argv, 2, flags, ROW_COUNT(flags), NULL, NULL, failure))
        return false;
    if (!agent->to || !port || !agent->secret_path)
        return fail(failure, EXIT_USAGE, "%s: found nothing: allowed: the conductor's address, its port, a file",
                    !agent->to ? "to"
                    : !port    ? "port"
                               : "secret-file");
    agent->idle_timeout_s = 600;
    if (!arguments_port("port", port, &agent->port, failure) ||
        (ports && !arguments_ports(ports, &agent->sessions.ports, failure)) ||
        (idle && !arguments_number("idle-timeout-s", idle, 1, 1e9, &agent->idle_timeout_s, failure)))
        return false;
    struct utsname system;
    uname(&system);
    system.nodename[strcspn(system.nodename, ".")] = '\0';
    if (!node)
        node = getenv("HPCQ_NODE");
    snprintf(agent->node, sizeof agent->node, "%s", node && *node ? node : system.nodename);
    return secret_read(agent->secret_path, &agent->sessions.secret, failure) &&
           sessions_address(agent->sessions.interface, bind_to, address, failure);
}

struct reaching {
    struct agent *agent;
    struct address from;
};

static bool agent_reach(void *context, const struct address *to, uint64_t deadline, struct failure *failure)
{
    struct reaching *reaching = context;
    struct address from = reaching->from;
    int descriptor = control_socket(to, failure);
    address_set_port(&from, 0);
    if (descriptor >= 0 && socket_bind_range(descriptor, false, &from, (struct port_range){0, 0}, failure) &&
        socket_connect(descriptor, to, deadline, failure)) {
        control_begin(&reaching->agent->control, descriptor, false);
        return true;
    }
    if (descriptor >= 0)
        close(descriptor);
    return false;
}

static bool agent_connect(struct agent *agent, const struct address *address, uint64_t deadline,
                          struct failure *failure)
{
    struct reaching reaching = {agent, *address};
    return addresses_reach(agent->to, agent->port, deadline, agent_reach, &reaching, failure) &&
           control_authenticate(&agent->control, &agent->sessions.secret, deadline, failure);
}

/* A conductor that strangers crowd turns us away before a word: we come again. */
static bool agent_meet(struct agent *agent, const struct address *address, uint64_t deadline, struct failure *failure)
{
    while (!agent_connect(agent, address, deadline, failure)) {
        if (!agent->control.turned_away || !clock_remaining_ms(deadline))
            return false;
        close(agent->control.descriptor);
        agent->control = (struct control){.descriptor = -1};
        *failure = (struct failure){.state = "join"};
        clock_sleep_until(clock_now_ns() + NS_PER_S / 20);
    }
    return true;
}

/* `here`: the agent is ready to serve and to measure. The facts are collected before it connects: a kernel that is slow
 * to answer for its devices must not make the conductor wait. */
static bool agent_join(struct agent *agent, const struct address *address, struct failure *failure)
{
    struct text out = {0}, facts = {0};
    char host[ADDRESS_TEXT_BYTES];
    failure->state = "join";
    facts_collect("", agent->sessions.interface ? agent->sessions.interface : "", &facts);
    uint64_t deadline = clock_now_ns() + 30 * NS_PER_S;
    bool ok = agent_meet(agent, address, deadline, failure);
    if (ok) {
        address_text(address, host);
        message_begin(&out, "here");
        message_put(&out, "node", agent->node);
        message_put(&out, "address", host);
        message_put_unsigned(&out, "port", address_port(address));
        message_put(&out, "build_id", hpcq_build_id);
        message_put(&out, "facts", text_string(&facts));
        ok = control_send(&agent->control, &out, deadline, failure);
    }
    text_free(&out);
    text_free(&facts);
    return ok;
}

static bool agent_send(struct agent *agent, const struct text *message, struct failure *failure)
{
    return control_send(&agent->control, message, clock_now_ns() + 15 * NS_PER_S, failure);
}

/* Everything that was forked dies; what they measured is of no use any more. */
static void agent_stop(struct agent *agent)
{
    play_kill(&agent->play);
    sessions_signal(&agent->sessions, SIGKILL);
}

static bool agent_message(struct agent *agent, struct failure *failure)
{
    struct received message;
    struct text out = {0};
    bool ok = true;
    if (!control_receive(&agent->control, &message, clock_now_ns() + 10 * NS_PER_S, failure))
        return false;
    const char *type = received_type(&message);
    if (!strcmp(type, "play")) {
        const int inherited[] = {agent->signals, agent->sessions.listener, agent->control.descriptor};
        struct play_place place = {agent->sessions.program,
                                   agent->sessions.interface,
                                   agent->secret_path,
                                   agent->sessions.programs_path,
                                   inherited,
                                   ROW_COUNT(inherited)};
        ok = play_start(&agent->play, &place, &message, failure);
    } else if (!strcmp(type, "ping")) {
        message_begin(&out, "pong");
        message_put_unsigned(&out, "no", received_unsigned(&message, "no"));
        ok = agent_send(agent, &out, failure);
    } else if (!strcmp(type, "stop")) {
        agent_stop(agent);
    } else if (!strcmp(type, "end")) {
        agent->ended = true;
    } else {
        ok = fail(failure, EXIT_PEER, "control channel: %.32s: the conductor does not speak this protocol", type);
    }
    received_free(&message);
    text_free(&out);
    return ok;
}

static bool agent_reap(struct agent *agent, struct failure *failure)
{
    struct signalfd_siginfo signal;
    int status = 0;
    while (read(agent->signals, &signal, sizeof signal) == (ssize_t)sizeof signal)
        if (signal.ssi_signo != SIGCHLD)
            fail(failure, EXIT_INVALID, "ended by signal %u", signal.ssi_signo);
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;)
        if (!sessions_ended(&agent->sessions, child, status))
            play_ended(&agent->play, child, status);
    return !failure->failed;
}

/* One turn: whatever has come in, and the result once it is whole. */
static bool agent_turn(struct agent *agent, int wait_ms, bool *heard, struct failure *failure)
{
    struct text out = {0};
    struct pollfd pollers[] = {{.fd = agent->signals, .events = POLLIN},
                               {.fd = agent->control.descriptor, .events = POLLIN},
                               {.fd = play_descriptor(&agent->play), .events = POLLIN},
                               {.fd = sessions_descriptor(&agent->sessions), .events = POLLIN}};
    int place_ms = sessions_wait_ms(&agent->sessions);
    if (place_ms >= 0 && place_ms < wait_ms)
        wait_ms = place_ms;
    if (poll(pollers, ROW_COUNT(pollers), wait_ms) < 0 && errno != EINTR)
        return fail_system(failure, "poll");
    if (pollers[2].revents)
        play_read(&agent->play);
    if (pollers[0].revents && !agent_reap(agent, failure))
        return false;
    if (pollers[3].revents) {
        const int inherited[] = {agent->signals, agent->control.descriptor, play_descriptor(&agent->play)};
        sessions_accept(&agent->sessions, inherited, ROW_COUNT(inherited));
    }
    *heard = pollers[1].revents != 0;
    if (*heard && !agent_message(agent, failure))
        return false;
    bool ok = !play_result(&agent->play, &out) || agent_send(agent, &out, failure);
    text_free(&out);
    return ok;
}

static bool agent_loop(struct agent *agent, struct failure *failure)
{
    uint64_t idle_ns = clock_ns_from_s(agent->idle_timeout_s), heard_ns = clock_now_ns();
    failure->state = "agent";
    while (!agent->ended) {
        bool heard = false;
        int wait_ms = clock_remaining_ms(heard_ns + idle_ns);
        if (!wait_ms)
            return fail(failure, EXIT_PEER, "nothing of the conductor for %g s", agent->idle_timeout_s);
        if (!agent_turn(agent, wait_ms, &heard, failure))
            return false;
        if (heard || play_descriptor(&agent->play) >= 0)
            heard_ns = clock_now_ns();
    }
    return true;
}

int agent_main(const struct program *program, int argc, char **argv)
{
    struct agent agent = {.sessions = {.program = program, .listener = -1, .turn = -1}, .signals = -1};
    struct failure failure = {.state = "agent"};
    struct address address;
    agent.control.descriptor = -1;
    agent.play.descriptor = -1;
    bool ok = agent_arguments(&agent, argc, argv, &address, &failure) &&
              (agent.signals = sessions_signals(&failure)) >= 0 &&
              sessions_listen(&agent.sessions, &address, &failure) && agent_join(&agent, &address, &failure) &&
              agent_loop(&agent, &failure);
    agent_stop(&agent);
    play_free(&agent.play);
    sessions_end(&agent.sessions);
    secret_wipe(&agent.sessions.secret);
    if (!ok)
        fail_print(&failure);
    return ok ? EXIT_MEASURED : (int)failure.exit_code;
}
