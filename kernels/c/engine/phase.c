/* One phase:
 *
 *   active                                 passive
 *     step step step ... limit               step step step ...
 *     stop {count, bytes}           ->       step ... until that many are here, or the drain limit
 *                                   <-       stopped
 *
 * Where both send, the passive end stops when it hears `stop`, and says `half {count, bytes}`; both receive to the end.
 *
 * Nothing is sent on the control channel in between: a message then is the peer's failure, or `halt`, the wish of a
 * passive client that was interrupted. */
#include "engine/phase.h"

#include "base/signals.h"
#include "engine/capturing.h"
#include "engine/precision.h"

#include <signal.h>
#include <string.h>

static const double drain_limit_s = 10; /* what a slow, deep-buffered path may still deliver after the stop */
static const double answer_limit_s = 15;
static const uint64_t reason_limit_ns = NS_PER_S; /* the word may be lost on its way, and come again */

void phase_begin(struct run *run, enum phase phase)
{
    run->phase = phase;
    run->operation_count = run->sent_count = run->sent_bytes = run->call_count = 0;
    run->stopped = run->peer_stopped = run->closing = false;
    run->under_way_count = 0;
    run->first_left_ns = 0;
    run->peer_sent_count = run->peer_sent_bytes = run->peer_first_left_ns = 0;
    precision_begin(run);
    series_begin(&run->series, (unsigned)run_common(run)->series_interval_ms);
    run->kernel->begin(run);
    if (phase == PHASE_MEASURE) {
        run_start(run);
        capturing_record(run);
    }
}

static void phase_usage_stop(struct run *run)
{
    getrusage(RUSAGE_SELF, &run->usage_end);
    run->usage_end_ns = clock_now_ns();
}

static void phase_clock_start(struct run *run)
{
    run->usage_end_ns = 0;
    getrusage(RUSAGE_SELF, &run->usage_start);
    run->phase_start_ns = run->now_ns = clock_now_ns();
}

/* What goes wrong then is found at the next look. */
static void phase_moment(struct run *run, enum moment moment)
{
    if (!run->is_server && run->phase == PHASE_MEASURE && run->kernel->moment)
        run->kernel->moment(run, moment);
}

static void phase_stop_sending(struct run *run)
{
    run->stopped = true;
    if (run->kernel->halt)
        run->kernel->halt(run);
    run->sent_end_ns = clock_now_ns();
    phase_moment(run, MOMENT_STOPPED);
}

static void phase_clock_stop(struct run *run)
{
    run->phase_end_ns = clock_now_ns();
    if (!run->usage_end_ns)
        phase_usage_stop(run);
}

static double phase_duration_s(const struct run *run)
{
    const struct common_options *common = run_common(run);
    return run->phase == PHASE_WARMUP ? common->warmup_s : common->duration_s;
}

static bool phase_say(struct run *run, const char *type, uint64_t deadline_ns);

/* Ctrl-C at the client ends the measurement, and keeps what there is; once more ends everything. A foreign program is
 * over with the signal that it got too. */
static bool interrupt_kept(struct run *run)
{
    if (signals_stop() != SIGINT || run->is_server || run->phase != PHASE_MEASURE || run->interrupted ||
        run->kernel->is_foreign)
        return false;
    signals_forget();
    run->interrupted = true;
    run->more_follow = false;
    run->closing = run->is_active;
    run_invalid(run, "interrupted by signal %d after %.3g of %.6g s", SIGINT,
                (double)(clock_now_ns() - run->phase_start_ns) / 1e9, phase_duration_s(run));
    return run->is_active || phase_say(run, "halt", clock_now_ns() + 5 * NS_PER_S);
}

static bool interrupted(struct run *run)
{
    return signals_stop() && !interrupt_kept(run) &&
           (run->failure.failed || !fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop()));
}

/* A message at the active end is bad news, but for the wish of a client that was interrupted. */
static bool active_peer_well(struct run *run)
{
    struct received message;
    signals_control_seen();
    if (!run->is_server || run->closing || !control_readable(&run->control))
        return control_silent(&run->control, &run->failure);
    if (!control_expect(&run->control, "halt", &message, clock_now_ns() + NS_PER_S, &run->failure))
        return false;
    received_free(&message);
    run->closing = true;
    return true;
}

static bool has_moved(enum step step)
{
    return step == STEP_OPERATION || step == STEP_MOVED;
}

/* Two connections: the server's word, sent before it closed its test sockets, may arrive after their end. */
void phase_peer_reason(struct run *run)
{
    const struct failure own = run->failure;
    uint64_t limit_ns = clock_now_ns() + reason_limit_ns;
    if (run->is_server || own.exit_code != EXIT_PEER)
        return;
    while (!control_readable(&run->control) && clock_now_ns() < limit_ns)
        clock_sleep_until(clock_now_ns() + reason_limit_ns / 100);
    run->failure = (struct failure){.state = own.state};
    if (control_silent(&run->control, &run->failure))
        run->failure = own;
}

/* The passive end is awake and in its loop before anything is timed: it reads `go`, and begins its own clock, while the
 * active one would measure already. */
static bool active_settled(struct run *run)
{
    if (!run->is_active || !run->kernel->settle || run->kernel->settle(run))
        return true;
    phase_peer_reason(run);
    return false;
}

static bool active_loop(struct run *run)
{
    uint64_t end_ns = run->phase_start_ns + clock_ns_from_s(phase_duration_s(run));
    uint64_t limit = run->phase == PHASE_MEASURE ? (uint64_t)run_common(run)->operation_count_max : 0;
    for (;;) {
        enum step step = run->kernel->step(run);
        if (interrupted(run))
            return false;
        if (step == STEP_FAILED) {
            phase_peer_reason(run);
            return false;
        }
        run->operation_count += step == STEP_OPERATION;
        if (step == STEP_DONE || (limit && run->operation_count >= limit))
            return true;
        run->closing = run->closing || run->now_ns >= end_ns || precision_reached(run);
        if (run->closing && run->deadline_ns && run->now_ns > run->deadline_ns)
            return fail(&run->failure, EXIT_PEER,
                        "timed out: not all that is under way ended within the limit of %.6g s", run->timeout_s);
        if (run->closing && step != STEP_BUSY && !run->under_way_count)
            return true;
        if ((!has_moved(step) || signals_control()) && !active_peer_well(run))
            return false;
    }
}

/* `stop`, `half` or `halt`: what this end sent. */
static bool phase_say(struct run *run, const char *type, uint64_t deadline_ns)
{
    struct text out = {0};
    message_begin(&out, type);
    message_put_unsigned(&out, "sent_count", run->sent_count);
    message_put_unsigned(&out, "sent_bytes", run->sent_bytes);
    message_put_unsigned(&out, "first_left_ns", run->first_left_ns);
    bool ok = control_send(&run->control, &out, deadline_ns, &run->failure);
    text_free(&out);
    return ok;
}

/* The peer's `stop`, or its `half` at the active end. */
static bool passive_message(struct run *run)
{
    struct received message;
    uint64_t limit_ns = clock_now_ns() + 5 * NS_PER_S;
    signals_control_seen();
    if (run->peer_stopped || !control_readable(&run->control))
        return true;
    if (!control_expect(&run->control, run->is_active ? "half" : "stop", &message, limit_ns, &run->failure))
        return false;
    run->peer_stopped = true;
    run->peer_sent_count = received_unsigned(&message, "sent_count");
    run->peer_sent_bytes = received_unsigned(&message, "sent_bytes");
    run->peer_first_left_ns = received_unsigned(&message, "first_left_ns");
    received_free(&message);
    if (run->is_active)
        return true;
    phase_usage_stop(run);
    phase_stop_sending(run);
    return !run->both_send || phase_say(run, "half", limit_ns);
}

static bool passive_loop(struct run *run, uint64_t deadline_ns)
{
    uint64_t drain_ns = 0;
    for (;;) {
        enum step step = run->kernel->step(run);
        if (interrupted(run))
            return false;
        if (step == STEP_FAILED) {
            phase_peer_reason(run);
            return false;
        }
        if (step == STEP_DONE)
            return true;
        run->operation_count += step == STEP_OPERATION && !run->stopped;
        if ((!has_moved(step) || signals_control()) && !passive_message(run))
            return false;
        if (run->peer_stopped && !drain_ns)
            drain_ns = run->now_ns + clock_ns_from_s(drain_limit_s);
        if (drain_ns && run->now_ns > drain_ns) {
            if (run->phase == PHASE_WARMUP)
                return fail(&run->failure, EXIT_PEER, "timed out: the warm-up did not drain");
            run_warn(run, "drain_incomplete", "not all that was sent had arrived %.0f s after the stop", drain_limit_s);
            return true;
        }
        if (run->now_ns > deadline_ns)
            return fail(&run->failure, EXIT_PEER, "timed out: the peer did not stop");
    }
}

static bool phase_active(struct run *run)
{
    struct received message;
    if (!active_loop(run))
        return false;
    precision_warm(run);
    phase_stop_sending(run);
    phase_clock_stop(run);
    uint64_t deadline = run_state(run, "stop", drain_limit_s + answer_limit_s);
    if (!phase_say(run, "stop", deadline) || (run->both_send && !passive_loop(run, deadline)) ||
        !control_expect(&run->control, "stopped", &message, deadline, &run->failure))
        return false;
    received_free(&message);
    return true;
}

static bool phase_passive(struct run *run)
{
    struct text out = {0};
    uint64_t limit = run_state(run, run->failure.state, phase_duration_s(run) + drain_limit_s + answer_limit_s);
    if (!passive_loop(run, limit))
        return false;
    phase_clock_stop(run);
    message_begin(&out, "stopped");
    bool ok = control_send(&run->control, &out, run_state(run, "stop", answer_limit_s), &run->failure);
    text_free(&out);
    return ok;
}

bool phase_run(struct run *run)
{
    run_state(run, run->phase == PHASE_WARMUP ? "warmup" : "measure", 0);
    if (!active_settled(run))
        return false;
    phase_clock_start(run);
    phase_moment(run, MOMENT_STARTED);
    return run->is_active ? phase_active(run) : phase_passive(run);
}

void phase_end(struct run *run)
{
    if (run->kernel->end)
        run->kernel->end(run);
    if (run->phase != PHASE_MEASURE)
        return;
    precision_end(run);
    run_finish(run);
    capturing_stop(run);
}
