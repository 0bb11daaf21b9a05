/* What strangers and old files may hand to the parsers, by chance: form kept and sense changed, or bytes turned. The
 * sanitizers watch; the seed is fixed, so what is found once is found again. */
#include "check.h"
#include "evidence/sources.h"
#include "tournament/tournament.h"
#include "wire/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 3000 };

static uint64_t dice = 20261121;

static size_t roll(size_t sides) /* xorshift64 */
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (size_t)(dice % sides);
}

static void put(struct text *text, const char *from, size_t length)
{
    text_add(text, from, length);
}

/* A copy with some places changed: a byte turned, a piece left out, doubled, or replaced by an odd number. */
static void mutate(const char *from, struct text *to)
{
    static const char *const odd[] = {
        "",   "-1", "18446744073709551616", "1e400", "nan", "\xff\xfe", ":", " ", "\n", "%s", "\"", "{{{{{{{{",
        "0x", "é"};
    size_t length = strlen(from), at = 0;
    text_clear(to);
    while (at < length) {
        size_t run = 1 + roll(length < 8 ? 8 : length / 2), rest = length - at, piece = run < rest ? run : rest;
        const char *word = odd[roll(sizeof odd / sizeof odd[0])];
        put(to, from + at, piece);
        at += piece;
        switch (roll(4)) {
        case 0:
            put(to, word, strlen(word));
            break;
        case 1:
            put(to, from + at - piece, piece);
            break;
        case 2:
            at += roll(9) < length - at ? roll(9) : 0;
            at = at < length ? at : length;
            break;
        default:
            if (to->length)
                to->data[to->length - 1] = (char)(1 + roll(255));
        }
    }
}

static void fuzz_message(const struct text *text)
{
    struct received message = {.payload = memory_new(text->length + 1, 1), .length = text->length};
    const char *cursor = NULL, *value = NULL;
    size_t count = 0;
    if (text->length)
        memcpy(message.payload, text->data, text->length);
    if (text->length && received_split(&message)) {
        while (received_next(&message, "", &cursor, &value))
            count += strlen(value) < text->length;
        CHECK(count <= text->length);
        received_get(&message, "metric.a");
        received_number(&message, "metric.a");
        received_unsigned(&message, "no");
    }
    received_free(&message);
}

static void fuzz_source(const struct source *source, const char *before, const char *after)
{
    struct counters counters = {0}, later = {0};
    source_parse(source, before, after, &counters, &later);
    for (size_t i = 0; i < counters.count; i++)
        CHECK(counters_find(&counters, counters_name(&counters, i), 0) <= i);
    counters_free(&counters);
    counters_free(&later);
}

/* A file that strangers cannot reach, but that a full disk or another version may have left. */
static void fuzz_tournament(const struct text *text, const struct program *program)
{
    char path[] = "/tmp/check_fuzz.XXXXXX";
    int descriptor = mkstemp(path);
    struct tournament tournament = {0};
    struct failure failure = {0};
    CHECK(descriptor >= 0 && write(descriptor, text_string(text), text->length) == (ssize_t)text->length);
    close(descriptor);
    bool ok = tournament_read(path, program, &tournament, &failure);
    CHECK(ok || failure.message[0]);
    tournament_free(&tournament);
    unlink(path);
}

void check_fuzz(void)
{
    static const char message[] = "report\nmetric.a 1\nno 7\ngranted.b {\"c\":[1,2.5e3,\"\\u00e9\"]}\nevidence {}\n";
    static const char json[] = "{\"a\":[1,-2.5e-3,true,null,{\"b\":\"\\u00e9 é\\n\"}],\"c\":{}}";
    static const char tournament[] =
        "tournament 1\nnode a\nnode b\ntest 1 other 10\noption x 1\nstep 1 1 1\nmatch j1 a b\n";
    static const char *const texts[] = {
        "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 9 1 2\nctxt 5\nbtime 1\n",
        "           CPU0       CPU1\n  0:  10 20 IO-APIC 2-edge timer\nNMI: 1 2 Non-maskable\nERR: 0\n",
        "Tcp: A B CurrEstab\nTcp: 1 2 3\nUdp: C\nUdp: 4\n",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 total=1\n",
        "0000003a 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n",
        "Inter-|   Receive\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
        "TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 2\n",
        "cpu0 0 0 0 0 0 0 1 2 3\ndomain0 03 0 0\n",
        "busy_us 5\nmin_round_trip_us 3\neth0.tbf.backlog_bytes 4\n",
    };
    static const struct kernel *const none[] = {NULL};
    const struct program program = {.name = "check", .kernels = none, .usage = ""};
    struct text text = {0};
    for (size_t i = 0; i < ROUNDS; i++) {
        mutate(message, &text);
        fuzz_message(&text);
        mutate(json, &text);
        json_check(text_string(&text));
        const char *before = texts[roll(sizeof texts / sizeof texts[0])];
        mutate(before, &text);
        fuzz_source(&sources[roll(source_count)], before, text_string(&text));
        if (i % 10)
            continue;
        mutate(tournament, &text);
        fuzz_tournament(&text, &program);
    }
    text_free(&text);
}
