/* The server's side of one measurement, in a process of its own. It has no parameters: the client sends them all.
 *
 *   hello -> request -> [ready] -> (joined ->) open -> { start -> started -> go -> warmup|measure -> stop } -> report
 * -> bye
 *
 * A `bye` that says so is followed by the request of the next size of a sweep.
 */
#include "engine/session.h"

#include "base/signals.h"
#include "describe/program.h"
#include "engine/capturing.h"
#include "engine/phase.h"
#include "engine/report.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static const double margin_s = 15; /* the server gives up this much later than its client */

static bool session_options(struct run *run, const struct received *message)
{
    const char *cursor = NULL, *name, *value;
    while ((name = received_next(message, "option.", &cursor, &value)))
        if (!options_set(&run->kernel->options, run->options, name, value, &run->failure))
            return false;
    if (!relations_hold(&run->kernel->options, run->options, &run->failure))
        return false;
    run->keep.evidence_asked = received_unsigned(message, "evidence_full");
    run->keep.raw_asked = received_unsigned(message, "raw");
    double timeout_s = received_number(message, "timeout_s");
    if (!(timeout_s > 0) || timeout_s > 1e6)
        return fail(&run->failure, EXIT_PEER, "timeout_s: found %g: allowed: above 0 to 1000000", timeout_s);
    run->deadline_ns = clock_now_ns() + clock_ns_from_s(timeout_s + margin_s);
    alarm((unsigned)(timeout_s + 2 * margin_s)); /* the hard limit: default action, the process ends */
    return true;
}

/* Of a kernel that tells: what the client has to say. */
static bool session_joined(struct run *run)
{
    struct received message;
    if (!run->kernel->tells)
        return true;
    if (!control_expect(&run->control, "joined", &message, run_state(run, "open", run_open_limit_s(run)),
                        &run->failure))
        return false;
    told_read(run, &message);
    received_free(&message);
    return true;
}

static bool session_ready(struct run *run)
{
    struct text out = {0};
    capturing_start(run);
    message_begin(&out, "ready");
    message_put_unsigned(&out, "port", run->test_port);
    if (run->second_port)
        message_put_unsigned(&out, "second_port", run->second_port);
    message_put(&out, "version", HPCQ_VERSION);
    message_put(&out, "build_id", hpcq_build_id);
    told_write(run, &out);
    bool ok = control_send(&run->control, &out, run_state(run, "ready", 10), &run->failure);
    message_begin(&out, "opened");
    ok = ok && session_joined(run) && (run_state(run, "open", run_open_limit_s(run)), run->kernel->open(run)) &&
         control_send(&run->control, &out, run_state(run, "open", run_open_limit_s(run)), &run->failure);
    text_free(&out);
    return ok;
}

/* Waits for the start of a phase and runs it. Returns which one in *phase. */
static bool session_phase(struct run *run, enum phase *phase)
{
    struct received message;
    struct text out = {0};
    if (!control_expect(&run->control, "start", &message, run_state(run, "start", 30), &run->failure))
        return false;
    const char *name = received_get(&message, "phase");
    *phase = name && !strcmp(name, "warmup") ? PHASE_WARMUP : PHASE_MEASURE;
    received_free(&message);
    phase_begin(run, *phase);
    message_begin(&out, "started");
    bool ok = control_send(&run->control, &out, run_state(run, "start", 10), &run->failure) &&
              control_expect(&run->control, "go", &message, run_state(run, "start", 30), &run->failure);
    if (ok)
        received_free(&message);
    ok = ok && phase_run(run);
    text_free(&out);
    if (ok)
        phase_end(run);
    return ok;
}

static bool session_report(struct run *run)
{
    struct text out = {0};
    struct received message;
    report_write(run, &out);
    capturing_write(run, &out);
    uint64_t deadline = run_state(run, "report", 15 + capturing_limit_s(run));
    bool ok = control_send(&run->control, &out, deadline, &run->failure) &&
              control_expect(&run->control, "bye", &message, run_state(run, "bye", 15), &run->failure);
    if (ok) {
        run->more_follow = received_unsigned(&message, "more");
        received_free(&message);
    }
    text_free(&out);
    return ok;
}

static bool session_measure(struct run *run)
{
    enum phase phase = PHASE_NONE;
    run->is_active = run->kernel->server_sends && run->kernel->server_sends(run->options);
    run->both_send = run->kernel->both_send && run->kernel->both_send(run->options);
    bool ok = run_pin(run) && (run_state(run, "listen", 5), run->kernel->listen(run)) && session_ready(run);
    while (ok && phase != PHASE_MEASURE)
        ok = session_phase(run, &phase);
    return ok && session_report(run);
}

/* Tells the client what failed here, unless it is the client that is gone. */
static void session_failed(struct control *control, const struct failure *failure, const char *type)
{
    struct text out = {0};
    struct failure ignored = {0};
    message_begin(&out, type);
    text_print(&out, "reason %s%s%s\n", failure->state ? failure->state : "", failure->state ? ": " : "",
               failure->message);
    message_put(&out, "hint", failure->hint);
    control_send(control, &out, clock_now_ns() + NS_PER_S, &ignored);
    text_free(&out);
}

/* *more: another request follows. */
static bool session_request(struct control *control, const struct session_place *place, bool *more,
                            struct failure *failure)
{
    struct received message;
    struct run run;
    failure->state = "request";
    if (!control_expect(control, "request", &message, clock_now_ns() + 10 * NS_PER_S, failure))
        return false;
    const char *name = received_get(&message, "kernel");
    const struct kernel *kernel = name ? program_kernel(place->program, name) : NULL;
    if (!kernel) {
        fail(failure, EXIT_PEER, "%s: no such kernel here", name ? name : "nothing");
        session_failed(control, failure, "refused");
        received_free(&message);
        return false;
    }
    run_begin(&run, place->program, kernel, true);
    run.control = *control;
    run.ports = place->ports;
    run.programs_path = place->programs_path;
    run.failure.state = "request";
    address_of_socket(control->descriptor, &run.local);
    run.peer = place->peer;
    run.evidence = evidence_new(&run.local, place->interface);
    bool begun = session_options(&run, &message), ok = begun && session_measure(&run);
    received_free(&message);
    *failure = run.failure;
    if (!ok && run.failure.failed)
        session_failed(&run.control, failure, run.phase == PHASE_NONE ? "refused" : "failed");
    if (begun)
        kernel->close(&run); /* after the reason, for which a client looks once its test channel ends */
    *more = ok && run.more_follow;
    if (*more) {
        *control = run.control;
        run.control.descriptor = -1;
    }
    run_end(&run);
    return ok;
}

enum session_end session_serve(int descriptor, const struct session_place *place, struct secret *secret,
                               struct failure *failure)
{
    struct control control;
    control_begin(&control, descriptor, true);
    bool known = control_authenticate(&control, secret, clock_now_ns() + 5 * NS_PER_S, failure);
    secret_wipe(secret);
    if (!known) {
        session_failed(&control, failure, "refused");
        return SESSION_REFUSED;
    }
    if (!place->claim(place->claim_argument)) {
        fail(failure, EXIT_PEER, "another session is running");
        session_failed(&control, failure, "refused");
        return SESSION_REFUSED;
    }
    signals_watch(descriptor);
    bool ok = true, more = true;
    while (ok && more)
        ok = session_request(&control, place, &more, failure);
    return ok ? SESSION_SERVED : SESSION_FAILED;
}
