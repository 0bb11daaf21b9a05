/* See run.h. */
#include "engine/run.h"

#include "base/aside.h"
#include "base/signals.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES_MAX = 1 << 24 }; /* 128 MiB of address space; pages are touched as samples come */

void run_begin(struct run *run, const struct program *program, const struct kernel *kernel, bool is_server)
{
    memset(run, 0, sizeof *run);
    run->program = program;
    run->kernel = kernel;
    run->is_server = is_server;
    run->control.descriptor = -1;
    run->options = memory_new(1, kernel->options.struct_bytes);
    run->metrics = memory_new(1, kernel->metrics.struct_bytes);
    run->state = memory_new(1, kernel->state_bytes);
    options_default(&kernel->options, run->options);
    metrics_clear(&kernel->metrics, run->metrics);
    if (kernel->round_trips && !is_server)
        run->histogram = memory_new(1, sizeof *run->histogram);
}

static void notes_free(struct notes *notes)
{
    for (size_t i = 0; i < notes->count; i++) {
        free(notes->list[i].name);
        free(notes->list[i].value);
    }
    free(notes->list);
    *notes = (struct notes){0};
}

void run_end(struct run *run)
{
    capture_free(run->capture);
    text_free(&run->peer_capture);
    notes_free(&run->granted);
    notes_free(&run->warnings);
    notes_free(&run->outputs);
    notes_free(&run->told);
    notes_free(&run->heard);
    notes_free(&run->others);
    notes_free(&run->keep.peer_raw);
    free(run->keep.peer_full);
    evidence_free(run->evidence);
    free(run->options);
    free(run->metrics);
    free(run->state);
    free(run->histogram);
    free(run->samples.list);
    free(run->peer_evidence);
    notes_free(&run->columns);
    for (size_t i = 0; i < run->buffer_count; i++)
        placed_free(&run->buffers[i]);
    free(run->buffers);
    series_free(&run->series);
    intervals_free(&run->intervals);
    free(run->cpus_before);
    if (run->idle_descriptor > 0)
        close(run->idle_descriptor);
    if (run->control.descriptor >= 0)
        close(run->control.descriptor);
}

const struct common_options *run_common(const struct run *run)
{
    return run->options;
}

struct common_metrics *run_common_metrics(struct run *run)
{
    return run->metrics;
}

void *run_buffer(struct run *run, size_t bytes)
{
    const struct common_options *common = run_common(run);
    struct placed *list = realloc(run->buffers, (run->buffer_count + 1) * sizeof *list);
    if (!list) {
        fputs("error: out of memory\n", stderr);
        exit(EXIT_SYSTEM);
    }
    run->buffers = list;
    list[run->buffer_count] =
        placed_new(bytes, (size_t)common->buffer_offset_bytes, (enum page_choice)common->buffer_pages);
    return list[run->buffer_count++].at;
}

void *run_noise(struct run *run, size_t bytes)
{
    void *memory = run_buffer(run, bytes);
    memory_noise(memory, bytes);
    return memory;
}

bool run_sends(const struct run *run)
{
    return (run->is_active || run->both_send) && !run->stopped;
}

bool run_receives(const struct run *run)
{
    return !run->is_active || run->both_send;
}

uint64_t run_state(struct run *run, const char *state, double limit_s)
{
    uint64_t deadline = clock_now_ns() + clock_ns_from_s(limit_s);
    run->failure.state = state;
    return run->deadline_ns && run->deadline_ns < deadline ? run->deadline_ns : deadline;
}

double run_open_limit_s(const struct run *run)
{
    return run->kernel->tells ? 60 : 10;
}

void run_invalid(struct run *run, const char *format, ...)
{
    if (run->invalid)
        return;
    va_list arguments;
    va_start(arguments, format);
    run->invalid = true;
    vsnprintf(run->invalid_reason, sizeof run->invalid_reason, format, arguments);
    va_end(arguments);
}

void notes_add(struct notes *notes, const char *name, const char *value)
{
    struct note *list = realloc(notes->list, (notes->count + 1) * sizeof *list);
    char *name_copy = strdup(name), *value_copy = strdup(value);
    if (!list || !name_copy || !value_copy) {
        fputs("error: out of memory\n", stderr);
        exit(EXIT_SYSTEM);
    }
    list[notes->count++] = (struct note){name_copy, value_copy};
    notes->list = list;
}

void run_warn(struct run *run, const char *name, const char *format, ...)
{
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    notes_add(&run->warnings, name, message);
}

static void run_grant(struct run *run, const char *name, struct text *json)
{
    char prefixed[96];
    snprintf(prefixed, sizeof prefixed, "%s_%s", run->is_server ? "server" : "client", name);
    notes_add(&run->granted, prefixed, text_string(json));
    text_free(json);
}

void run_grant_number(struct run *run, const char *name, double value)
{
    struct text json = {0};
    json_number(&json, value);
    run_grant(run, name, &json);
}

void run_grant_boolean(struct run *run, const char *name, bool value)
{
    struct text json = {0};
    json_boolean(&json, value);
    run_grant(run, name, &json);
}

void run_grant_text(struct run *run, const char *name, const char *value)
{
    struct text json = {0};
    json_string(&json, value);
    run_grant(run, name, &json);
}

void run_arrived(struct run *run, uint64_t when_ns, double bytes)
{
    if (run->phase != PHASE_MEASURE)
        return;
    series_add(&run->series, when_ns > run->phase_start_ns ? when_ns - run->phase_start_ns : 0, bytes);
    run->arrived_bytes += (uint64_t)bytes;
}

void run_column(struct run *run, bool of_return, const char *name, struct text *json)
{
    char prefixed[96];
    snprintf(prefixed, sizeof prefixed, "%s%s", of_return ? "return_" : "", name);
    notes_add(&run->columns, prefixed, text_string(json));
    text_free(json);
}

/* A measurement that began below what it came to: its mean tells of the warm-up, not of the path. */
void run_ramp(struct run *run)
{
    double first_bps = series_rate_bps(&run->series, 0, 0.2), last_bps = series_rate_bps(&run->series, 0.5, 1);
    if (first_bps < 0.8 * last_bps)
        run_warn(run, "ramp", "the first fifth ran at %.4g bit/s, the second half at %.4g: raise warmup_s", first_bps,
                 last_bps);
}

void run_round_trip(struct run *run, uint64_t elapsed_ns)
{
    intervals_sample(&run->intervals, elapsed_ns);
    if (run->phase != PHASE_MEASURE)
        return;
    histogram_add(run->histogram, elapsed_ns);
    struct samples *samples = &run->samples;
    if (!samples->path)
        return;
    if (!samples->list) {
        samples->list = memory_new(SAMPLES_MAX, sizeof *samples->list);
        samples->capacity = SAMPLES_MAX;
    }
    if (samples->count < samples->capacity)
        samples->list[samples->count++] = elapsed_ns;
}

/* Written aside and renamed, in the byte order that the result line names. */
bool run_samples_write(struct run *run)
{
    const struct samples *samples = &run->samples;
    if (!samples->path || run->failure.failed)
        return true;
    struct aside aside;
    aside_open(&aside, samples->path);
    bool ok = aside.file != NULL;
    for (size_t i = 0; ok && i < samples->count; i++) {
        uint8_t bytes[8];
        for (unsigned b = 0; b < 8; b++)
            bytes[b] = (uint8_t)(samples->list[i] >> (8 * b));
        ok = fwrite(bytes, sizeof bytes, 1, aside.file) == 1;
    }
    ok = aside_close(&aside, ok);
    if (samples->count == SAMPLES_MAX)
        run_warn(run, "samples_truncated", "the first %d samples were kept; the histogram has them all", SAMPLES_MAX);
    run->failure.state = ok ? run->failure.state : "samples";
    return ok || fail_system(&run->failure, "%s", samples->path);
}

static double usage_s(const struct rusage *usage)
{
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
           (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

/* The process's own; NAN where the clock did not move. */
static double run_cpu_ns(const struct run *run)
{
    if (run->usage_end_ns <= run->phase_start_ns)
        return (double)NAN;
    return (usage_s(&run->usage_end) - usage_s(&run->usage_start)) * 1e9;
}

static void run_cpu(struct run *run)
{
    struct common_metrics *common = run_common_metrics(run);
    bool server = run->is_server;
    double process_ns = run_cpu_ns(run), node_ns = evidence_node_cpu_ns(run->evidence);
    double bytes = (double)(run->sent_bytes + run->arrived_bytes);
    *(server ? &common->server_cpu_ns : &common->client_cpu_ns) = process_ns;
    *(server ? &common->server_cpu_ratio : &common->client_cpu_ratio) =
        process_ns / (double)(run->usage_end_ns - run->phase_start_ns);
    *(server ? &common->server_node_cpu_ratio : &common->client_node_cpu_ratio) =
        evidence_node_cpu_ratio(run->evidence);
    *(server ? &common->server_node_cpu_ns : &common->client_node_cpu_ns) = node_ns;
    if (bytes > 0) {
        *(server ? &common->server_cpu_per_byte_ns : &common->client_cpu_per_byte_ns) = process_ns / bytes;
        *(server ? &common->server_node_cpu_per_byte_ns : &common->client_node_cpu_per_byte_ns) = node_ns / bytes;
    }
}

/* What the stamps are made of: a clock that is no register costs a system call each time. */
static void run_clock_source(struct run *run)
{
    char name[64] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
    if (file && fgets(name, sizeof name, file)) {
        name[strcspn(name, "\n")] = '\0';
        run_grant_text(run, "clock_source", name);
    }
    if (file)
        fclose(file);
}

/* What the clock's steps leave open: more than 0.1 % of all that was measured, or of one sample more than a bucket of
 * the histogram. */
static void run_clock_steps(struct run *run)
{
    const double time_share_max = 0.001, sample_share_max = 0.008;
    double step_ns = clock_step_ns(), time_ns = (double)(run->phase_end_ns - run->phase_start_ns);
    double sample_ns = run->histogram && run->histogram->count ? histogram_mean_ns(run->histogram) : HUGE_VAL;
    bool of_sample = step_ns > sample_share_max * sample_ns;
    if (of_sample || step_ns > time_share_max * time_ns)
        run_warn(run, "clock_coarse", "the %s's clock moves in steps of %.0f ns, %.2g %% of %s of %.0f ns",
                 run->is_server ? "server" : "client", step_ns, 100 * step_ns / (of_sample ? sample_ns : time_ns),
                 of_sample ? "a mean sample" : "the time measured", of_sample ? sample_ns : time_ns);
}

/* A series keeps so many intervals, of a long measurement the first ones. */
static void run_series_end(struct run *run)
{
    double whole_s = (double)SERIES_LENGTH_MAX * run->series.interval_ms / 1e3;
    double took_s = (double)(run->phase_end_ns - run->phase_start_ns) / 1e9;
    if (run->series.length && took_s > whole_s)
        run_warn(run, "series_truncated", "the series has the first %.6g of %.6g s: raise series_interval_ms", whole_s,
                 took_s);
}

/* Where the buffers lay, by their addresses, and the smallest pages that any of them lay in. */
static void run_places(struct run *run)
{
    double page_bytes = HUGE_VAL;
    bool huge = run_common(run)->buffer_pages == PAGES_HUGE;
    for (size_t i = 0; i < run->buffer_count; i++)
        page_bytes = fmin(page_bytes, placed_page_bytes(&run->buffers[i]));
    if (run->buffer_count)
        run_grant_number(run, "buffer_offset_bytes", (double)placed_offset_bytes(&run->buffers[0]));
    if (isfinite(page_bytes))
        run_grant_number(run, "buffer_page_bytes", page_bytes);
    if (huge && page_bytes <= PLACED_PAGE_BYTES)
        run_warn(run, "option_not_granted", "%s: buffer_pages: asked for huge, granted pages of %.0f bytes",
                 run->is_server ? "server" : "client", page_bytes);
}

void run_start(struct run *run)
{
    clock_utc(run->started_utc);
    evidence_before(run->evidence);
    signals_continued_forget();
}

void run_finish(struct run *run)
{
    struct common_metrics *common = run_common_metrics(run);
    if (signals_continued())
        run_invalid(run, "the %s stood still during the measurement: its process was stopped and continued (SIGCONT)",
                    run->is_server ? "server" : "client");
    evidence_after(run->evidence);
    run->evidence_complete = true;
    run_cpu(run);
    run_clock_source(run);
    run_clock_steps(run);
    run_places(run);
    run_series_end(run);
    if (run->call_count)
        *(run->is_server ? &common->server_call_count : &common->client_call_count) = (double)run->call_count;
    if (run->series.length) {
        struct text json = {0};
        if (!run->both_send || run->is_server)
            common->throughput_width_ratio = series_width_ratio(&run->series, run_common(run)->width_level_ratio);
        series_json(&run->series, &json);
        run_column(run, run->both_send && !run->is_server, "throughput_bps", &json);
    }
    run->kernel->report(run);
}
