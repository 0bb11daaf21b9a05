/* Messages of the control channel: written, split, read, and refused when they are no messages. */
#include "check.h"
#include "wire/control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct received received_from(const char *payload)
{
    return (struct received){strdup(payload), strlen(payload)};
}

static void check_bad(const char *payload)
{
    struct received message = received_from(payload);
    CHECK(!received_split(&message));
    received_free(&message);
}

void check_messages(void)
{
    struct text out = {0};
    const char *cursor = NULL, *value = NULL;
    message_begin(&out, "report");
    message_put(&out, "metric.a", "1");
    message_put(&out, "note", "two\nlines and  blanks");
    message_put(&out, "empty", "");
    message_put_number(&out, "metric.b", 0.1);
    message_put_unsigned(&out, "big", UINT64_MAX);
    struct received message = received_from(text_string(&out));
    CHECK(received_split(&message));
    CHECK_TEXT(received_type(&message), "report");
    CHECK_TEXT(received_get(&message, "note"), "two lines and  blanks");
    CHECK_TEXT(received_get(&message, "empty"), "");
    CHECK(received_get(&message, "metric") == NULL);
    CHECK(received_number(&message, "metric.b") == 0.1);
    CHECK(isnan(received_number(&message, "none")));
    CHECK(received_unsigned(&message, "big") == UINT64_MAX);
    CHECK_TEXT(received_next(&message, "metric.", &cursor, &value), "a");
    CHECK_TEXT(value, "1");
    CHECK_TEXT(received_next(&message, "metric.", &cursor, &value), "b");
    CHECK(received_next(&message, "metric.", &cursor, &value) == NULL);
    received_free(&message);
    text_free(&out);
    check_bad("no line end");
    check_bad("type\nkey without end");
    check_bad("type\nkeyonly\n");
}
