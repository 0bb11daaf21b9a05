/* The client's states, each with a name and a limit (seconds), as they stand in `error.state`:
 *
 *   secret  connect(5)  hello(8)  request(10)  open(10; over libfabric 60 each)  start(15)  warmup|measure(phase)
 * stop(25)  report(15)
 */
#include "engine/client.h"

#include "base/signals.h"
#include "describe/arguments.h"
#include "describe/program.h"
#include "engine/capturing.h"
#include "engine/phase.h"
#include "engine/report.h"
#include "engine/result.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The address that the person named, else that of the interface; the test channel then has the same. */
static bool client_source(struct run *run, const struct client_place *place, int descriptor, int family)
{
    struct address from;
    if (place->bind_to) {
        if (!address_parse(place->bind_to, family, &from, &run->failure))
            return false;
    } else if (!place->interface) {
        return true;
    } else if (!address_of_interface(place->interface, family, &from, &run->failure)) {
        return false;
    }
    return socket_bind_range(descriptor, false, &from, (struct port_range){0, 0}, &run->failure);
}

struct reaching {
    struct run *run;
    const struct client_place *place;
};

static bool client_join(struct run *run, const struct client_place *place, const struct address *to, uint64_t deadline)
{
    int descriptor = control_socket(to, &run->failure);
    if (descriptor < 0)
        return false;
    run->control.descriptor = descriptor;
    if (!client_source(run, place, descriptor, to->storage.ss_family) ||
        !socket_connect(descriptor, to, deadline, &run->failure))
        return false;
    run->peer = *to;
    if (!address_of_socket(descriptor, &run->local))
        return fail_system(&run->failure, "getsockname");
    control_begin(&run->control, descriptor, false);
    return true;
}

/* failure: the run's own. */
static bool client_reach(void *context, const struct address *to, uint64_t deadline, struct failure *failure)
{
    struct reaching *reaching = context;
    (void)failure;
    if (client_join(reaching->run, reaching->place, to, deadline))
        return true;
    if (reaching->run->control.descriptor >= 0)
        close(reaching->run->control.descriptor);
    reaching->run->control.descriptor = -1;
    return false;
}

static bool client_connect(struct run *run, const struct client_place *place)
{
    struct reaching reaching = {run, place};
    uint64_t deadline = run_state(run, "connect", 5);
    return addresses_reach(place->to, place->port, deadline, client_reach, &reaching, &run->failure);
}

static const double turn_limit_s = 8; /* as long as a server lets one that it knows wait for its turn */

/* The server's host took the connection, and no word came: a server that measures looks at nobody else. */
static bool client_busy(struct run *run, const struct client_place *place, uint64_t since_ns)
{
    fail_hint(&run->failure, "let the other measurement end first, or start a server for each client (--port)");
    return fail(&run->failure, EXIT_PEER,
                "the server %s, port %u, is busy: it said nothing for %.2g s, as while it measures for another client",
                place->to, place->port, (double)(clock_now_ns() - since_ns) / 1e9);
}

/* A server that is crowded by strangers turns us away before a word: we come again within the limit. One that measures
 * lets us wait. */
static bool client_meet(struct run *run, const struct client_place *place, const struct secret *secret)
{
    const uint64_t pause_ns = 50000000, give_up_ns = clock_now_ns() + clock_ns_from_s(turn_limit_s);
    for (;;) {
        if (!client_connect(run, place))
            return false;
        uint64_t since_ns = clock_now_ns(), hello_ns = run_state(run, "hello", turn_limit_s);
        if (control_authenticate(&run->control, secret, hello_ns, &run->failure))
            return true;
        if (!run->control.heard && !run->control.turned_away && clock_now_ns() >= hello_ns && !signals_stop()) {
            run->failure.failed = false;
            return client_busy(run, place, since_ns);
        }
        if (!run->control.turned_away || clock_now_ns() + pause_ns > give_up_ns)
            return false;
        close(run->control.descriptor);
        run->control.descriptor = -1;
        run->failure = (struct failure){0};
        clock_sleep_until(clock_now_ns() + pause_ns);
    }
}

static void request_message(const struct run *run, struct text *out)
{
    struct text value = {0};
    message_begin(out, "request");
    message_put(out, "kernel", run->kernel->name);
    message_put(out, "version", HPCQ_VERSION);
    message_put(out, "build_id", hpcq_build_id);
    message_put_number(out, "timeout_s", run->timeout_s);
    message_put_unsigned(out, "evidence_full", run->keep.evidence_path || run->keep.evidence_asked);
    message_put_unsigned(out, "raw", run->keep.raw_folder != NULL);
    for (size_t i = 0; i < run->kernel->options.count; i++) {
        char key[96];
        text_clear(&value);
        options_value(&run->kernel->options.rows[i], run->options, &value);
        snprintf(key, sizeof key, "option.%s", run->kernel->options.rows[i].name);
        message_put(out, key, text_string(&value));
    }
    text_free(&value);
}

static bool client_request(struct run *run)
{
    struct text out = {0};
    struct received message;
    uint64_t deadline = run_state(run, "request", run_open_limit_s(run));
    request_message(run, &out);
    bool ok = control_send(&run->control, &out, deadline, &run->failure) &&
              control_expect(&run->control, "ready", &message, deadline, &run->failure);
    if (ok) {
        const char *build = received_get(&message, "build_id");
        run->test_port = (unsigned)received_unsigned(&message, "port");
        run->second_port = (unsigned)received_unsigned(&message, "second_port");
        told_read(run, &message);
        if (!build || strcmp(build, hpcq_build_id) != 0)
            run_warn(run, "build_differs", "the server is build %.64s, this client %s", build ? build : "?",
                     hpcq_build_id);
        received_free(&message);
    }
    text_free(&out);
    return ok;
}

static bool client_open(struct run *run)
{
    struct text out = {0};
    struct received message;
    uint64_t deadline = run_state(run, "open", run_open_limit_s(run));
    capturing_start(run);
    bool ok = run->kernel->open(run);
    if (!ok)
        phase_peer_reason(run); /* its test port may be gone by now */
    message_begin(&out, "joined");
    told_write(run, &out);
    ok = ok && (!run->kernel->tells || control_send(&run->control, &out, deadline, &run->failure)) &&
         control_expect(&run->control, "opened", &message, deadline, &run->failure);
    text_free(&out);
    if (ok)
        received_free(&message);
    return ok;
}

static bool client_phase(struct run *run, enum phase phase)
{
    struct text out = {0};
    struct received message;
    uint64_t deadline = run_state(run, "start", 15);
    message_begin(&out, "start");
    message_put(&out, "phase", phase == PHASE_WARMUP ? "warmup" : "measure");
    bool ok = control_send(&run->control, &out, deadline, &run->failure);
    phase_begin(run, phase); /* the server takes its snapshot meanwhile */
    ok = ok && control_expect(&run->control, "started", &message, deadline, &run->failure);
    if (ok)
        received_free(&message);
    message_begin(&out, "go"); /* both snapshots are taken: whichever end sends may begin */
    ok = ok && control_send(&run->control, &out, deadline, &run->failure);
    text_free(&out);
    if (!ok || !phase_run(run))
        return false;
    phase_end(run);
    return true;
}

static bool client_report(struct run *run)
{
    struct text out = {0};
    struct received message;
    uint64_t deadline = run_state(run, "report", 15 + capturing_limit_s(run));
    if (!control_expect(&run->control, "report", &message, deadline, &run->failure))
        return false;
    report_read(run, &message);
    capturing_read(run, &message);
    received_free(&message);
    message_begin(&out, "bye");
    message_put_unsigned(&out, "more", run->more_follow); /* another request follows */
    bool ok = control_send(&run->control, &out, deadline, &run->failure);
    text_free(&out);
    return ok;
}

/* What outlives one measurement of a sweep. */
struct client {
    const struct client_place *place;
    uint64_t deadline_ns; /* 0: each measurement's own */
    struct control control;
    struct address local, peer;
};

static bool client_authenticated(struct run *run, struct client *client)
{
    struct secret secret;
    run_state(run, "secret", 0);
    if (!secret_read(client->place->secret_path, &secret, &run->failure))
        return false;
    bool met = client_meet(run, client->place, &secret);
    secret_wipe(&secret);
    if (met && !signals_watch(run->control.descriptor))
        return fail_system(&run->failure, "SIGIO on the control channel");
    return met;
}

/* Over the control channel of the measurement before, where there was one. */
static bool client_joined(struct run *run, struct client *client)
{
    if (client->control.descriptor < 0)
        return client_authenticated(run, client);
    run->control = client->control;
    run->local = client->local;
    run->peer = client->peer;
    client->control.descriptor = -1;
    return true;
}

static bool client_moment(struct run *run, enum moment moment)
{
    if (!run->kernel->moment)
        return true;
    run_state(run, "companion", 0);
    return run->kernel->moment(run, moment);
}

static bool client_measure(struct run *run, void *context)
{
    struct client *client = context;
    const struct client_place *place = client->place;
    const struct common_options *common = run_common(run);
    /* Every phase ends by its own limits; this is the bound over all of them. */
    run->timeout_s = common->warmup_s + common->duration_s + 60;
    if (client->deadline_ns)
        run->timeout_s = fmax(0.001, (double)clock_remaining_ms(client->deadline_ns) / 1e3);
    run->deadline_ns = clock_now_ns() + clock_ns_from_s(run->timeout_s);
    run->programs_path = place->programs_path;
    if (!relations_hold(&run->kernel->options, run->options, &run->failure) || !client_joined(run, client))
        return false;
    run->is_active = !(run->kernel->server_sends && run->kernel->server_sends(run->options));
    run->both_send = run->kernel->both_send && run->kernel->both_send(run->options);
    run->evidence = evidence_new(&run->local, place->interface);
    bool ok = run_pin(run) && client_request(run) && client_open(run) && client_moment(run, MOMENT_OPENED) &&
              (common->warmup_s <= 0 || client_phase(run, PHASE_WARMUP)) && client_phase(run, PHASE_MEASURE) &&
              client_moment(run, MOMENT_ENDED) && client_report(run);
    run->kernel->close(run);
    if (ok && run->more_follow) {
        client->control = run->control;
        client->local = run->local;
        client->peer = run->peer;
        run->control.descriptor = -1;
    }
    return ok;
}

int client_run(struct run *run, const struct client_place *place, struct result_out *out)
{
    struct client client = {.place = place, .control = {.descriptor = -1}};
    if (place->timeout_s > 0)
        client.deadline_ns = clock_now_ns() + clock_ns_from_s(place->timeout_s);
    return sweep_run(run, client_measure, &client, out);
}

struct client_words {
    const char *to, *port, *secret, *interface, *bind_to, *timeout, *samples, *evidence, *raw, *capture, *programs,
        *sizes_done;
};

static bool client_arguments(struct run *run, int argc, char **argv, struct client_place *place)
{
    struct client_words words = {0};
    const struct flag flags[] = {{"to", &words.to},
                                 {"port", &words.port},
                                 {"secret-file", &words.secret},
                                 {"interface", &words.interface},
                                 {"bind", &words.bind_to},
                                 {"timeout-s", &words.timeout},
                                 {"samples-file", &words.samples},
                                 {"evidence-file", &words.evidence},
                                 {"raw-dir", &words.raw},
                                 {"capture-file", &words.capture},
                                 {"programs-file", &words.programs},
                                 {"sizes-done", &words.sizes_done}};
    struct failure *failure = &run->failure;
    failure->state = run->kernel->name;
    if (!arguments_parse(argc, argv, 2, flags, ROW_COUNT(flags), &run->kernel->options, run->options, failure))
        return false;
    if (!words.to || !words.port || !words.secret)
        return fail(failure, EXIT_USAGE, "%s: found nothing: allowed: an address, a port and a file of mode 0600",
                    !words.to     ? "to"
                    : !words.port ? "port"
                                  : "secret-file");
    if (!arguments_port("port", words.port, &place->port, failure))
        return false;
    if (words.timeout && !arguments_number("timeout-s", words.timeout, 0.001, 1e6, &place->timeout_s, failure))
        return false;
    place->to = words.to;
    place->bind_to = words.bind_to;
    place->interface = words.interface && words.interface[0] ? words.interface : NULL;
    run->keep.evidence_path = words.evidence;
    run->keep.raw_folder = words.raw;
    run->keep.capture_path = words.capture;
    place->secret_path = words.secret;
    place->programs_path = words.programs;
    run->sizes_done = words.sizes_done;
    run->samples.path = run->kernel->round_trips ? words.samples : NULL;
    return true;
}

int client_main(const struct program *program, const struct kernel *kernel, int argc, char **argv)
{
    struct run run;
    struct client_place place = {0};
    signals_install();
    run_begin(&run, program, kernel, false);
    struct result_out out = {.descriptor = STDOUT_FILENO};
    int code;
    if (client_arguments(&run, argc, argv, &place)) {
        code = client_run(&run, &place, &out);
    } else {
        result_json(&run, &out.json);
        code = result_exit_code(&run);
    }
    result_say(&run);
    code = result_write(&out, code);
    run_end(&run);
    return code;
}
