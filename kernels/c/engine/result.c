/* The result line (format 1, docs/architecture.md): options as used, what was granted, metrics, evidence of both ends.
 */
#include "engine/result.h"

#include "base/sha256.h"
#include "describe/program.h"
#include "engine/capturing.h"
#include "engine/keep.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int result_exit_code(const struct run *run)
{
    if (run->failure.failed)
        return (int)run->failure.exit_code;
    return run->invalid ? EXIT_INVALID : EXIT_MEASURED;
}

static void result_head(const struct run *run, struct text *json)
{
    json_key(json, "format");
    json_integer(json, RESULT_FORMAT);
    json_key(json, "kernel");
    json_string(json, run->kernel->name);
    json_key(json, "program");
    json_string(json, run->program->name);
    json_key(json, "version");
    json_string(json, HPCQ_VERSION);
    json_key(json, "build_id");
    json_string(json, hpcq_build_id);
    json_key(json, "options");
    options_echo(&run->kernel->options, run->options, json);
    json_key(json, "granted");
    json_open(json, '{');
    for (size_t i = 0; i < run->granted.count; i++) {
        json_key(json, run->granted.list[i].name);
        json_raw(json, run->granted.list[i].value);
    }
    json_close(json, '}');
}

static void result_verdict(const struct run *run, struct text *json)
{
    const struct failure *failure = &run->failure;
    json_key(json, "valid");
    json_boolean(json, !failure->failed && !run->invalid);
    json_key(json, "invalid_reason");
    json_string(json, failure->failed ? failure->message : run->invalid ? run->invalid_reason : NULL);
    json_key(json, "exit_code");
    json_integer(json, result_exit_code(run));
    json_key(json, "error");
    if (failure->failed) {
        json_open(json, '{');
        json_key(json, "state");
        json_string(json, failure->state ? failure->state : "start");
        json_key(json, "message");
        json_string(json, failure->message);
        json_close(json, '}');
    } else {
        json_null(json);
    }
    json_key(json, "started_utc");
    json_string(json, run->started_utc[0] ? run->started_utc : NULL);
    json_key(json, "duration_ns");
    json_unsigned(json, !failure->failed && run->phase == PHASE_MEASURE ? run->phase_end_ns - run->phase_start_ns : 0);
}

static void result_metrics(const struct run *run, struct text *json)
{
    json_key(json, "metrics");
    if (run->failure.failed) {
        json_open(json, '{');
        json_close(json, '}');
    } else {
        metrics_json(&run->kernel->metrics, run->metrics, json);
    }
    json_key(json, "warnings");
    json_open(json, '[');
    for (size_t i = 0; i < run->warnings.count; i++) {
        json_open(json, '{');
        json_key(json, "name");
        json_string(json, run->warnings.list[i].name);
        json_key(json, "message");
        json_string(json, run->warnings.list[i].value);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void result_samples(const struct run *run, struct text *json)
{
    json_key(json, "samples");
    if (!run->samples.path || run->failure.failed) {
        json_null(json);
    } else {
        json_open(json, '{');
        json_key(json, "file");
        json_string(json, run->samples.path);
        json_key(json, "format");
        json_string(json, "u64-ns-le");
        json_key(json, "count");
        json_unsigned(json, run->samples.count);
        json_close(json, '}');
    }
    json_key(json, "histogram");
    if (!run->histogram || run->failure.failed) {
        json_null(json);
        return;
    }
    json_open(json, '{');
    json_key(json, "unit");
    json_string(json, "ns");
    json_key(json, "buckets");
    json_open(json, '[');
    for (size_t i = 0; i < HISTOGRAM_BUCKET_COUNT; i++) {
        if (!run->histogram->buckets[i])
            continue;
        json_open(json, '[');
        json_unsigned(json, histogram_lower_ns(i));
        json_unsigned(json, run->histogram->buckets[i]);
        json_close(json, ']');
    }
    json_close(json, ']');
    json_close(json, '}');
}

/* By interval: from the end that received, and from the one that sent. */
static void result_series(const struct run *run, struct text *json)
{
    json_key(json, "series");
    if (run->failure.failed || !run->columns.count) {
        json_null(json);
        return;
    }
    json_open(json, '{');
    json_key(json, "interval_ms");
    json_integer(json, run_common(run)->series_interval_ms);
    for (size_t i = 0; i < run->columns.count; i++) {
        json_key(json, run->columns.list[i].name);
        json_raw(json, run->columns.list[i].value);
    }
    json_close(json, '}');
}

static void result_evidence(const struct run *run, struct text *json)
{
    json_key(json, "evidence");
    json_open(json, '{');
    json_key(json, "client");
    if (run->evidence && run->evidence_complete)
        evidence_json(run->evidence, false, json);
    else
        json_null(json);
    json_key(json, "server");
    if (run->peer_evidence)
        json_raw(json, run->peer_evidence);
    else
        json_null(json);
    for (size_t i = 0; i < run->others.count; i++) {
        json_key(json, run->others.list[i].name);
        json_raw(json, run->others.list[i].value);
    }
    json_close(json, '}');
}

static void result_outputs(const struct run *run, struct text *json)
{
    if (!run->outputs.count)
        return;
    json_key(json, "outputs");
    json_open(json, '{');
    for (size_t i = 0; i < run->outputs.count; i++) {
        json_key(json, run->outputs.list[i].name);
        json_raw(json, run->outputs.list[i].value);
    }
    json_close(json, '}');
}

/* The last key: length and SHA-256 of the object before it. Libraries write on our standard output too, before the
 * line, after it and into it; with these a reader finds the object among their words and proves it whole. */
static void result_frame(size_t begin, struct text *json)
{
    size_t length = json->length - begin;
    uint8_t digest[SHA256_BYTES];
    struct sha256 hash;
    sha256_begin(&hash);
    sha256_add(&hash, json->data + begin, length);
    sha256_end(&hash, digest);
    text_print(json, ",\"frame\":{\"length_bytes\":%zu,\"sha256\":\"", length);
    for (size_t i = 0; i < sizeof digest; i++)
        text_print(json, "%02x", digest[i]);
    text_print(json, "\"}");
}

void result_json(struct run *run, struct text *json)
{
    run_samples_write(run);
    keep_files(run);
    capturing_files(run);
    json_open(json, '{');
    size_t begin = json->length - 1; /* a comma of the object around it is not part of it */
    result_head(run, json);
    result_verdict(run, json);
    result_metrics(run, json);
    result_samples(run, json);
    result_series(run, json);
    result_outputs(run, json);
    result_evidence(run, json);
    result_frame(begin, json);
    json_close(json, '}');
}

void result_say(const struct run *run)
{
    if (run->failure.failed)
        fail_print(&run->failure);
    else if (run->invalid)
        fprintf(stderr, "warning: measured, but invalid: %s\n", run->invalid_reason);
}

/* To the disk, where it is a file: a node that loses its power takes no size away. A pipe is its reader's. */
static void result_sync(struct result_out *out)
{
    struct stat status;
    if (out->unsynced || fstat(out->descriptor, &status) || !S_ISREG(status.st_mode))
        return;
    int rc;
    while ((rc = fdatasync(out->descriptor)) && errno == EINTR)
        continue;
    out->unsynced = rc;
    if (rc)
        fprintf(stderr, "warning: sizes of the sweep may be lost with this node: fdatasync: %s\n", strerror(errno));
}

bool result_flush(struct result_out *out, struct failure *failure)
{
    if (out->descriptor < 0)
        return true;
    size_t length = out->json.length;
    text_add(&out->json, "\n", 1); /* of the line, not of the object: nobody else wants it */
    out->failed = out->failed || !text_write(&out->json, out->written, out->descriptor);
    out->json.length = out->written = length;
    out->json.data[length] = '\0';
    if (!out->failed)
        result_sync(out);
    return !out->failed || fail_system(failure, "write of the result");
}

int result_write(struct result_out *out, int code)
{
    text_add(&out->json, "\n", 1);
    struct failure failure = {.state = "result"};
    if (!out->failed && !text_write(&out->json, out->written, out->descriptor)) {
        fail_system(&failure, "write of the result");
        fail_print(&failure);
    }
    text_free(&out->json);
    return out->failed || failure.failed ? EXIT_SYSTEM : code;
}

int result_print(struct run *run)
{
    struct result_out out = {.descriptor = STDOUT_FILENO};
    result_json(run, &out.json);
    result_say(run);
    return result_write(&out, result_exit_code(run));
}
