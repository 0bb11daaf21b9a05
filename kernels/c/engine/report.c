/* See report.h. */
#include "engine/report.h"

#include "engine/keep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void report_write(const struct run *run, struct text *message)
{
    char key[128];
    struct text evidence = {0};
    message_begin(message, "report");
    for (size_t i = 0; i < run->kernel->metrics.count; i++) {
        double value = metrics_value(&run->kernel->metrics.rows[i], run->metrics);
        snprintf(key, sizeof key, "metric.%s", run->kernel->metrics.rows[i].name);
        if (isfinite(value))
            message_put_number(message, key, value);
    }
    for (size_t i = 0; i < run->granted.count; i++) {
        snprintf(key, sizeof key, "granted.%s", run->granted.list[i].name);
        message_put(message, key, run->granted.list[i].value);
    }
    for (size_t i = 0; i < run->warnings.count; i++) {
        snprintf(key, sizeof key, "warning.%s", run->warnings.list[i].name);
        message_put(message, key, run->warnings.list[i].value);
    }
    for (size_t i = 0; i < run->outputs.count; i++) {
        snprintf(key, sizeof key, "output.%s", run->outputs.list[i].name);
        message_put(message, key, run->outputs.list[i].value);
    }
    if (run->invalid)
        message_put(message, "invalid", run->invalid_reason);
    for (size_t i = 0; i < run->columns.count; i++) {
        snprintf(key, sizeof key, "series.%s", run->columns.list[i].name);
        message_put(message, key, run->columns.list[i].value);
    }
    evidence_json(run->evidence, false, &evidence);
    message_put(message, "evidence", text_string(&evidence));
    text_free(&evidence);
    keep_write(run, message);
}

void report_read(struct run *run, const struct received *message)
{
    const char *cursor = NULL, *name, *value;
    while ((name = received_next(message, "metric.", &cursor, &value)))
        metrics_store(&run->kernel->metrics, run->metrics, name, strtod(value, NULL));
    for (cursor = NULL; (name = received_next(message, "granted.", &cursor, &value));)
        if (json_check(value))
            notes_add(&run->granted, name, value);
    for (cursor = NULL; (name = received_next(message, "warning.", &cursor, &value));)
        notes_add(&run->warnings, name, value);
    for (cursor = NULL; (name = received_next(message, "output.", &cursor, &value));)
        if (json_check(value))
            notes_add(&run->outputs, name, value);
    for (cursor = NULL; (name = received_next(message, "series.", &cursor, &value));)
        if (json_check(value))
            notes_add(&run->columns, name, value);
    const char *invalid = received_get(message, "invalid"), *evidence = received_get(message, "evidence");
    if (invalid)
        run_invalid(run, "%s", invalid);
    if (evidence && json_check(evidence))
        run->peer_evidence = strdup(evidence);
    keep_read(run, message);
}

void told_write(const struct run *run, struct text *message)
{
    char key[64];
    for (size_t i = 0; i < run->told.count; i++) {
        snprintf(key, sizeof key, "told.%s", run->told.list[i].name);
        message_put(message, key, run->told.list[i].value);
    }
}

void told_read(struct run *run, const struct received *message)
{
    const char *cursor = NULL, *name, *value;
    while ((name = received_next(message, "told.", &cursor, &value)))
        notes_add(&run->heard, name, value);
}
