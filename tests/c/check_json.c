/* What is written is JSON, whatever bytes come in; and what is no JSON is recognised. */
#include "base/text.h"
#include "check.h"

#include <math.h>
#include <string.h>

static void check_writing(void)
{
    struct text json = {0};
    json_open(&json, '{');
    json_key(&json, "a\"b");
    json_string(&json, "tab\t quote\" back\\ bad\xff\xc0\xaf end");
    json_key(&json, "n");
    json_open(&json, '[');
    json_number(&json, 1e21);
    json_number(&json, (double)NAN);
    json_number(&json, -0.0);
    json_number(&json, 123456789012.0);
    json_number(&json, 0.1);
    json_unsigned(&json, UINT64_MAX);
    json_string(&json, NULL);
    json_boolean(&json, true);
    json_open(&json, '{');
    json_close(&json, '}');
    json_close(&json, ']');
    json_close(&json, '}');
    CHECK_TEXT(text_string(&json),
               "{\"a\\\"b\":\"tab\\u0009 quote\\\" back\\\\ bad\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd end\",\"n\":[1e+21,"
               "null,0,123456789012,0.1,18446744073709551615,null,true,{}]}");
    CHECK(json_check(text_string(&json)));
    text_free(&json);
}

static void check_every_byte(void)
{
    for (int first = 1; first < 256; first++) {
        for (int second = 1; second < 256; second += 7) {
            const char value[] = {(char)first, (char)second, '\0'};
            struct text json = {0};
            json_string(&json, value);
            CHECK(json_check(text_string(&json)));
            text_free(&json);
        }
    }
}

void check_json(void)
{
    static const char *const good[] = {"{}", "[]", " 1 ", "-0.5e+3", "\"\\u00e9\"", "[1,[2,{\"a\":null}]]", "true"};
    static const char *const bad[] = {"",    "{",     "{\"a\"}", "[1,]",    "01",  "1.",    "\"a", "\"\n\"",
                                      "nul", "{a:1}", "[1] [2]", "\"\\x\"", "- 1", "[1 2]", "+1",  "\"\\u12g4\""};
    check_writing();
    check_every_byte();
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK(json_check(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!json_check(bad[i]));
    char deep[200];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    CHECK(!json_check(deep));
}
