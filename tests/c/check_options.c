/* The option table: one row is flag, range check, wire form and echo. */
#include "check.h"
#include "describe/options.h"

#include <string.h>

static const char *const colours[] = {"red", "green", NULL};

struct sample {
    int64_t size_bytes, quick, colour;
    char law[OPTION_NAME_BYTES];
    double rate_bps;
};

static const struct option_row rows[] = {
    OPTION_INTEGER_ROW(struct sample, size_bytes, 1, 1, 65507, "a size"),
    OPTION_BOOLEAN_ROW(struct sample, quick, 1, "a switch"),
    OPTION_CHOICE_ROW(struct sample, colour, colours, "a choice"),
    OPTION_NUMBER_ROW(struct sample, rate_bps, 0.5, 0, 1e12, "a rate"),
    {"law", OPTION_NAME, offsetof(struct sample, law), 0, 0, 15, NULL, "a name"},
};
/* This kernel's default of a shared row. */
static const struct option_default defaults[] = {{"size_bytes", 64}, {NULL, 0}};
static const struct option_table table = {rows, 5, sizeof(struct sample), defaults};

static const char *const refused[] = {"12q", "1.5", "1e5", "0x10", "8Kbit", "8iB", "8s",
                                      "k",   "1e",  "1 k", " 1",   "-1",    "1kk"};
static const struct {
    const char *text;
    int64_t value;
} forms[] = {{"12k", 12000}, {"12K", 12000}, {"1.5k", 1500}, {"8Ki", 8192},  {"1e3", 1000}, {"65e3", 65000},
             {"+7", 7},      {"8KiB", 8192}, {"8kB", 8000},  {"8kib", 8192}, {"64B", 64}};

static void check_refused(const char *name, const char *value, const char *message)
{
    struct sample sample;
    struct failure failure = {0};
    options_default(&table, &sample);
    CHECK(!options_set(&table, &sample, name, value, &failure));
    CHECK(failure.exit_code == EXIT_USAGE);
    CHECK_TEXT(failure.message, message);
    CHECK(sample.size_bytes == 64 && sample.quick == 1 && sample.colour == 0);
}

void check_options(void)
{
    struct sample sample, copy;
    struct failure failure = {0};
    struct text json = {0}, wire = {0};
    options_default(&table, &sample);
    options_default(&table, &copy);
    CHECK(options_set(&table, &sample, "size_bytes", "65507", &failure));
    CHECK(options_set(&table, &sample, "quick", "false", &failure));
    CHECK(options_set(&table, &sample, "colour", "green", &failure));
    CHECK(options_set(&table, &sample, "rate_bps", "0.1", &failure));
    CHECK(options_set(&table, &sample, "law", "bbr_2", &failure));
    options_echo(&table, &sample, &json);
    CHECK_TEXT(text_string(&json),
               "{\"size_bytes\":65507,\"quick\":false,\"colour\":\"green\",\"rate_bps\":0.1,\"law\":\"bbr_2\"}");
    for (size_t i = 0; i < 5; i++) { /* over the wire and back: the same struct */
        text_clear(&wire);
        options_value(&rows[i], &sample, &wire);
        CHECK(options_set(&table, &copy, rows[i].name, text_string(&wire), &failure));
    }
    CHECK(!memcmp(&sample, &copy, sizeof sample));
    check_refused("size_bytes", "65508", "size_bytes: found 65508: allowed: integer 1 to 65507 bytes");
    check_refused("size_bytes", "0", "size_bytes: found 0: allowed: integer 1 to 65507 bytes");
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct text message = {0};
        text_print(&message, "size_bytes: found %s: allowed: integer 1 to 65507 bytes", refused[i]);
        check_refused("size_bytes", refused[i], text_string(&message));
        text_free(&message);
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        CHECK(options_set(&table, &sample, "size_bytes", forms[i].text, &failure));
        CHECK(sample.size_bytes == forms[i].value);
    }
    CHECK(options_set(&table, &sample, "rate_bps", "2.5G", &failure) && sample.rate_bps == 2.5e9);
    CHECK(options_set(&table, &sample, "rate_bps", "400mbit", &failure) && sample.rate_bps == 4e8);
    CHECK(options_set(&table, &sample, "rate_bps", "1.5Gbit/s", &failure) && sample.rate_bps == 1.5e9);
    check_refused("size_bytes", "", "size_bytes: found nothing: allowed: integer 1 to 65507 bytes");
    check_refused("size_bytes", "99999999999999999999",
                  "size_bytes: found 99999999999999999999: allowed: integer 1 to 65507 bytes");
    check_refused("rate_bps", "nan", "rate_bps: found nan: allowed: number 0 to 1e+12 bps");
    check_refused("quick", "maybe", "quick: found maybe: allowed: true or false");
    check_refused("colour", "blue", "colour: found blue: allowed: one of red green");
    check_refused("shape", "1", "shape: unknown option: allowed: size_bytes quick colour rate_bps law");
    check_refused("law", "0123456789abcdef",
                  "law: found 0123456789abcdef: allowed: name of a-z, 0-9, _, . and -, 15 at most");
    check_refused("law", "no law", "law: found no law: allowed: name of a-z, 0-9, _, . and -, 15 at most");
    CHECK_TEXT(unit_of("size_bytes"), "bytes");
    CHECK(unit_of("quick") == NULL);
    text_free(&json);
    text_free(&wire);
}
