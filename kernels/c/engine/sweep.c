/* See sweep.h. */
#include "engine/sweep.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* In order, each once. */
static void sweep_add(struct sweep *sweep, int64_t bytes)
{
    size_t place = sweep->count;
    while (place && sweep->sizes[place - 1] > bytes)
        place--;
    if ((place && sweep->sizes[place - 1] == bytes) || sweep->count == SWEEP_SIZES_MAX)
        return;
    memmove(sweep->sizes + place + 1, sweep->sizes + place, (sweep->count - place) * sizeof *sweep->sizes);
    sweep->sizes[place] = bytes;
    sweep->count++;
}

static int64_t *message_bytes_of(const struct option_row *row, void *options)
{
    return (int64_t *)(void *)((char *)options + row->offset);
}

bool sweep_sizes(const struct kernel *kernel, const void *options, struct sweep *sweep, struct failure *failure)
{
    const struct common_options *common = options;
    int64_t to = common->sweep_to_bytes, by = common->sweep_perturbation_bytes, first;
    const struct option_row *row = options_find(&kernel->options, "message_bytes");
    sweep->count = 0;
    if (!to && by)
        return fail(failure, EXIT_USAGE, "sweep_perturbation_bytes: found %lld without sweep_to_bytes: allowed: 0",
                    (long long)by);
    if (!to || !row)
        return true;
    memcpy(&first, (const char *)options + row->offset, sizeof first);
    if (to < first || (double)to > row->maximum)
        return fail(failure, EXIT_USAGE, "sweep_to_bytes: found %lld: allowed: 0, or message_bytes %lld to %.0f",
                    (long long)to, (long long)first, row->maximum);
    for (int64_t bytes = first; bytes <= to; bytes = bytes ? bytes * 2 : 1)
        for (int64_t one = bytes - by; one <= bytes + by; one += by ? by : 1)
            if ((double)one >= row->minimum && (double)one <= row->maximum)
                sweep_add(sweep, one);
    return true;
}

/* A path of its own: a file beside the one that the person named, a folder below it. */
static char *path_of_size(const char *path, char before, int64_t bytes)
{
    struct text made = {0};
    if (path)
        text_print(&made, "%s%c%lld", path, before, (long long)bytes);
    return made.data;
}

static void sweep_begin(struct run *one, const struct run *run, int64_t bytes)
{
    run_begin(one, run->program, run->kernel, run->is_server);
    memcpy(one->options, run->options, run->kernel->options.struct_bytes);
    *message_bytes_of(options_find(&run->kernel->options, "message_bytes"), one->options) = bytes;
    one->communicator = run->communicator;
    one->server_rank = run->server_rank;
    one->keep.evidence_asked = run->keep.evidence_asked;
    one->failure.state = run->failure.state;
    one->keep.evidence_path = path_of_size(run->keep.evidence_path, '.', bytes);
    one->keep.raw_folder = path_of_size(run->keep.raw_folder, '/', bytes);
    one->keep.capture_path = path_of_size(run->keep.capture_path, '.', bytes);
    one->samples.path = path_of_size(run->samples.path, '.', bytes);
}

static void sweep_end(struct run *one)
{
    char *paths[] = {(char *)(uintptr_t)one->keep.evidence_path, (char *)(uintptr_t)one->keep.raw_folder,
                     (char *)(uintptr_t)one->keep.capture_path, (char *)(uintptr_t)one->samples.path};
    run_end(one);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        free(paths[i]);
}

/* Takes the size out; false where the sweep has none such. */
static bool sweep_remove(struct sweep *sweep, int64_t bytes)
{
    for (size_t i = 0; i < sweep->count; i++)
        if (sweep->sizes[i] == bytes) {
            sweep->count--;
            memmove(sweep->sizes + i, sweep->sizes + i + 1, (sweep->count - i) * sizeof *sweep->sizes);
            return true;
        }
    return false;
}

/* done: A,B,... or NULL. Written as JSON has numbers, since the line repeats it. */
static bool sweep_without(struct sweep *sweep, const char *done, struct failure *failure)
{
    for (const char *at = done; at;) {
        char *end = NULL;
        bool number = isdigit((unsigned char)at[0]) && !(at[0] == '0' && isdigit((unsigned char)at[1]));
        long long bytes = number ? strtoll(at, &end, 10) : 0;
        if (!number || (*end && *end != ',') || !sweep_remove(sweep, bytes))
            return fail(failure, EXIT_USAGE, "sizes-done: found %.64s: allowed: A,B,..., sizes of the sweep, each once",
                        *at ? at : "nothing");
        at = *end ? end + 1 : NULL;
    }
    return true;
}

static void sweep_head(struct run *run, struct result_out *out)
{
    struct text *json = &out->json;
    json_open(json, '{');
    json_key(json, "format");
    json_integer(json, RESULT_FORMAT);
    json_key(json, "kernel");
    json_string(json, run->kernel->name);
    if (run->sizes_done) {
        json_key(json, "skipped");
        json_open(json, '[');
        json_raw(json, run->sizes_done);
        json_close(json, ']');
    }
    json_key(json, "sizes");
    json_open(json, '[');
    result_flush(out, &run->failure);
}

static void sweep_line(struct run *one, struct result_out *out)
{
    result_json(one, &out->json);
    result_flush(out, &one->failure);
}

static void sweep_tail(struct result_out *out, int code)
{
    json_close(&out->json, ']');
    json_key(&out->json, "exit_code");
    json_integer(&out->json, code);
    json_close(&out->json, '}');
}

static int run_alone(struct run *run, sweep_measure measure, void *context, struct result_out *out)
{
    if (!run->failure.failed)
        measure(run, context);
    if (out)
        result_json(run, &out->json);
    return result_exit_code(run);
}

int sweep_run(struct run *run, sweep_measure measure, void *context, struct result_out *out)
{
    struct sweep sweep = {.count = 0};
    int code = EXIT_MEASURED;
    if (!sweep_sizes(run->kernel, run->options, &sweep, &run->failure) || (!sweep.count && !run->sizes_done) ||
        !sweep_without(&sweep, run->sizes_done, &run->failure))
        return run_alone(run, measure, context, out);
    if (out)
        sweep_head(run, out);
    for (size_t i = 0; i < sweep.count && !run->failure.failed && !run->interrupted; i++) {
        struct run one;
        sweep_begin(&one, run, sweep.sizes[i]);
        one.more_follow = i + 1 < sweep.count;
        measure(&one, context);
        if (out)
            sweep_line(&one, out);
        int its = result_exit_code(&one);
        code = its != EXIT_MEASURED ? its : code;
        run->failure = one.failure;
        run->interrupted = one.interrupted;
        if (one.invalid)
            run_invalid(run, "%lld bytes: %s", (long long)sweep.sizes[i], one.invalid_reason);
        sweep_end(&one);
    }
    if (out)
        sweep_tail(out, code);
    return code;
}
