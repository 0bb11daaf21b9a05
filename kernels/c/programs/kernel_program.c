/* program: somebody else's client and server, run inside a measurement of ours.
 *
 *   server   its server is started -> ready                     ended after the stop     what it wrote -> client
 *   client                             its client runs, once
 *   both                           snapshot                 snapshot
 *
 * What the program wrote is not understood here: it goes into the result line as it is, under `outputs`. */
#include "programs/kernel_program.h"

#include "base/signals.h"
#include "programs/listening.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TURN_MS = 50 };
static const double server_end_limit_s = 5;

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct program_options, test_no, 1, 1, 1000000000, "number of the program in the programs file"),
    OPTION_ROWS_COMMON(struct program_options)};

struct program_metrics {
    struct common_metrics common;
};

static const struct metric_row metric_rows[] = {METRIC_ROWS_COMMON(struct program_metrics)};

static bool program_known(struct run *run)
{
    struct program_state *state = run->state;
    const struct program_options *options = run->options;
    return foreign_read(run->programs_path, (unsigned long)options->test_no, &state->foreign, &run->failure) &&
           foreign_folder(&state->foreign, &run->failure);
}

static struct places program_places(const struct run *run, char server[ADDRESS_TEXT_BYTES],
                                    char client[ADDRESS_TEXT_BYTES])
{
    address_text(run->is_server ? &run->local : &run->peer, server);
    address_text(run->is_server ? &run->peer : &run->local, client);
    return (struct places){
        .address = server, .client_address = client, .port = run->test_port, .second_port = run->second_port};
}

static bool program_start(struct run *run, const struct words *words)
{
    struct program_state *state = run->state;
    char server[ADDRESS_TEXT_BYTES], client[ADDRESS_TEXT_BYTES];
    struct places places = program_places(run, server, client);
    foreign_fill(words, &places, &state->command);
    return child_start(&state->child, &state->command, state->foreign.folder, &run->failure);
}

static bool program_ready(struct run *run)
{
    struct program_state *state = run->state;
    const struct foreign *foreign = &state->foreign;
    uint64_t deadline = clock_now_ns() + clock_ns_from_s(foreign->ready_s);
    char last[200];
    for (;;) {
        bool ended = child_turn(&state->child, 5);
        if (foreign->ready == READY_AT_ONCE && !ended)
            return true;
        if (foreign->ready == READY_WORDS && foreign->ready_words)
            for (size_t i = 0; i < 2; i++)
                if (strstr(text_string(&state->child.streams[i]), foreign->ready_words))
                    return true;
        if (foreign->ready == READY_LISTENING && !ended && listening(run->test_port))
            return true;
        if (!ended && clock_now_ns() < deadline && !signals_stop())
            continue;
        child_last_words(&state->child, last, sizeof last);
        return fail(&run->failure, EXIT_PEER, "%s: its server %s before it was ready (%g s allowed); it said last: %s",
                    foreign->name, ended ? "ended" : "took too long", foreign->ready_s, last);
    }
}

/* Ports that were free a moment ago, in the range of the firewall: as many as the commands name, from the last one on.
 */
static bool program_ports(struct run *run, unsigned *const *ports, size_t count)
{
    struct address address = run->local;
    address_set_port(&address, 0);
    if (!count)
        return true;
    int descriptor = socket_new(&address, SOCK_STREAM, &run->failure);
    if (descriptor < 0)
        return false;
    bool ok = socket_bind_range(descriptor, false, &address, run->ports, &run->failure) &&
              program_ports(run, ports, count - 1); /* while this one is taken */
    *ports[count - 1] = address_port(&address);
    close(descriptor);
    return ok;
}

/* Asked after the measurement, where nobody waits for an answer of seconds. One that says none is a warning: a change
 * of it would be in no record. */
static void program_version(struct run *run)
{
    struct program_state *state = run->state;
    struct failure failure = {0};
    if (!foreign_version(&state->foreign, &state->version, &failure))
        run_warn(run, "program_version_unknown", "%s: its version command: %s", run->is_server ? "server" : "client",
                 failure.message);
}

static bool program_listen(struct run *run)
{
    struct program_state *state = run->state;
    unsigned *const ports[] = {&run->test_port, &run->second_port};
    if (!program_known(run))
        return false;
    bool two = words_mention(&state->foreign.server, "{second_port}") ||
               words_mention(&state->foreign.client, "{second_port}");
    if (!program_ports(run, ports, two ? 2 : 1))
        return false;
    return program_start(run, &state->foreign.server) && program_ready(run);
}

static bool program_open(struct run *run)
{
    if (run->is_server)
        return true;
    return program_known(run);
}

static void program_begin(struct run *run)
{
    (void)run;
}

static enum step program_client_step(struct run *run)
{
    struct program_state *state = run->state;
    if (!state->child.pid && !program_start(run, &state->foreign.client))
        return STEP_FAILED;
    bool ended = child_turn(&state->child, TURN_MS);
    run->now_ns = clock_now_ns();
    if (ended) {
        foreign_collect(&state->foreign, &state->child);
        return STEP_OPERATION;
    }
    if (run->now_ns - state->child.start_ns < clock_ns_from_s(state->foreign.limit_s))
        return STEP_BUSY;
    state->child.timed_out = true;
    child_end(&state->child);
    return STEP_OPERATION;
}

static enum step program_server_step(struct run *run)
{
    struct program_state *state = run->state;
    bool ended = child_turn(&state->child, signals_control() ? 0 : TURN_MS);
    run->now_ns = clock_now_ns();
    if (!run->peer_stopped) {
        if (ended) /* by itself: nothing is left to wait for but the stop, which wakes us */
            poll(NULL, 0, signals_control() ? 0 : TURN_MS);
        return STEP_IDLE;
    }
    if (!state->end_by_ns)
        state->end_by_ns = run->now_ns + (state->foreign.server_ends ? clock_ns_from_s(server_end_limit_s) : 0);
    if (!ended && run->now_ns < state->end_by_ns)
        return STEP_IDLE;
    child_end(&state->child);
    return STEP_DONE;
}

static enum step program_step(struct run *run)
{
    return run->is_server ? program_server_step(run) : program_client_step(run);
}

static void program_report(struct run *run)
{
    const struct program_state *state = run->state;
    struct common_metrics *common = run_common_metrics(run);
    const struct timeval *user = &state->child.usage.ru_utime, *system = &state->child.usage.ru_stime;
    double used_s = (double)(user->tv_sec + system->tv_sec) + (double)(user->tv_usec + system->tv_usec) / 1e6,
           elapsed_s = (double)(run->phase_end_ns - run->phase_start_ns) / 1e9;
    struct text json = {0};
    /* Ours only waited: the program's own time is what counts. */
    *(run->is_server ? &common->server_cpu_ns : &common->client_cpu_ns) =
        state->child.ended ? used_s * 1e9 : (double)NAN;
    *(run->is_server ? &common->server_cpu_ratio : &common->client_cpu_ratio) =
        elapsed_s > 0 && state->child.ended ? used_s / elapsed_s : (double)NAN;
    program_version(run);
    child_json(&state->child, &state->command, state->version.length ? text_string(&state->version) : NULL, &json);
    notes_add(&run->outputs, run->is_server ? "server" : "client", text_string(&json));
    text_free(&json);
    if (state->version.length)
        run_grant_text(run, "program_version", text_string(&state->version));
}

/* The client judges when the server's output is here too: a failed program is a failed measurement, its output kept. */
static void program_close(struct run *run)
{
    struct program_state *state = run->state;
    if (!run->is_server && state->child.ended && !run->failure.failed) {
        run->failure.state = "program";
        foreign_succeeded(&state->foreign, &state->child, &run->failure);
    }
    child_free(&state->child);
    words_free(&state->command);
    foreign_free(&state->foreign);
    text_free(&state->version);
}

const struct kernel kernel_program = {
    .is_foreign = true,
    .name = "program",
    .internal = true,
    .summary = "Somebody else's program, as described in a file.",
    .method =
        "Starts the program's server and client from the programs file, takes snapshots around them, and hands on "
        "what they wrote.",
    .options = OPTION_TABLE(option_rows, struct program_options),
    .metrics = METRIC_TABLE(metric_rows, struct program_metrics),
    .state_bytes = sizeof(struct program_state),
    .listen = program_listen,
    .open = program_open,
    .begin = program_begin,
    .step = program_step,
    .report = program_report,
    .close = program_close,
};
