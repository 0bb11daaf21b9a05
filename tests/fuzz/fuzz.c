/* libFuzzer's entry: what a stranger, a peer, a command line or a damaged file can hand to the parsers.
 *
 * The first byte of an input says who reads the rest:
 *
 *   h  a stranger's bytes at a server that waits for `hello`, read as the conductor reads (never waiting)
 *   r  the same bytes, read as a session reads (waiting), by a client
 *   m  one message of a peer that knows the secret: framed and signed here, so that the lines are what is tried
 *   o  options of a kernel: `name value` lines for each kernel in turn
 *   a  a command line, words apart by blanks
 *   t  a tournament file; what comes after a line of `----` is the spool of an earlier player
 *   s  a source of the evidence: a digit pair says which, `----` parts both snapshots
 *   j  JSON of a peer
 *
 * Beside crashes and what the sanitizers see, a few properties are checked: what was accepted can be written and read
 * again, and what was refused has a message. */
#include "describe/arguments.h"
#include "evidence/sources.h"
#include "tournament/spool.h"

#include "base/clock.h"
#include "wire/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MUST(condition)                                                                                                        \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                    \
            abort();                                                                                                           \
        }                                                                                                                      \
    } while (0)

static const struct kernel *const kernels[] = {
    &kernel_tcp_stream,     &kernel_tcp_pingpong,    &kernel_udp_stream, &kernel_tcp_connect,  &kernel_udp_oneway,
    &kernel_udp_dispersion, &kernel_udp_rate_search, &kernel_path_probe, &kernel_udp_pingpong, NULL};
static const struct program program = {.name = "fuzz", .kernels = kernels, .usage = ""};
static const struct secret secret = {.bytes = "0123456789abcdef", .length = 16};

static void must_explain(const struct failure *failure)
{
    MUST(failure->failed && failure->message[0] && failure->exit_code > 0);
}

/* Everything that this program does with a message's text before it believes it. */
static void message_walk(const struct received *message)
{
    const char *cursor = NULL, *value = NULL, *name;
    size_t bytes = 0;
    while ((name = received_next(message, "", &cursor, &value)))
        bytes += strlen(name) + strlen(value);
    MUST(bytes <= message->length);
    MUST(strlen(received_type(message)) <= message->length);
    received_number(message, "timeout_s");
    received_unsigned(message, "port");
    for (cursor = NULL; (name = received_next(message, "option.", &cursor, &value));)
        for (size_t i = 0; kernels[i]; i++) {
            struct failure failure = {0};
            void *options = memory_new(1, kernels[i]->options.struct_bytes);
            options_default(&kernels[i]->options, options);
            if (!options_set(&kernels[i]->options, options, name, value, &failure))
                must_explain(&failure);
            free(options);
        }
    for (cursor = NULL; (name = received_next(message, "metric.", &cursor, &value));)
        json_check(value);
}

static void stranger(const uint8_t *data, size_t size, bool waits)
{
    int pair[2];
    struct control control;
    struct received message;
    struct nonces nonces;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    bool whole = send(pair[0], data, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
    shutdown(pair[0], SHUT_WR);
    control_begin(&control, pair[1], !waits);
    for (size_t turn = 0; whole && turn < 8; turn++) {
        struct failure failure = {0};
        bool got = waits ? control_receive(&control, &message, clock_now_ns() + NS_PER_S, &failure)
                         : control_poll(&control, &message, &failure);
        if (!got) {
            MUST(!failure.failed || failure.message[0]);
            break;
        }
        message_walk(&message);
        if (!waits && turn == 0 &&
            !control_challenge(&control, &secret, &nonces, &message, clock_now_ns() + NS_PER_S, &failure))
            must_explain(&failure);
        else if (!waits && turn == 1)
            MUST(!control_proven(&control, &secret, &nonces, &message, &failure)); /* nobody guesses a fresh proof */
        received_free(&message);
    }
    text_free(&control.arrived);
    close(pair[0]);
    close(pair[1]);
}

static void peer(const uint8_t *data, size_t size)
{
    int pair[2];
    struct control from, to;
    struct received message;
    struct failure failure = {0};
    struct text text = {0};
    if (size == 0 || size > 60000) /* what a socket takes at once */
        return;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    control_begin(&from, pair[0], false);
    control_begin(&to, pair[1], true);
    from.authenticated = to.authenticated = true;
    text_add(&text, data, size);
    uint64_t deadline_ns = clock_now_ns() + NS_PER_S;
    MUST(control_send(&from, &text, deadline_ns, &failure));
    if (control_receive(&to, &message, deadline_ns, &failure)) {
        message_walk(&message);
        received_free(&message);
    } else {
        must_explain(&failure);
    }
    text_free(&text);
    close(pair[0]);
    close(pair[1]);
}

/* What is accepted survives the wire: read again it is the same struct. */
static void options_round(const struct option_table *table, const void *options)
{
    void *again = memory_new(1, table->struct_bytes);
    struct text value = {0}, json = {0};
    options_default(table, again);
    for (size_t i = 0; i < table->count; i++) {
        struct failure failure = {0};
        text_clear(&value);
        options_value(&table->rows[i], options, &value);
        MUST(options_set(table, again, table->rows[i].name, text_string(&value), &failure));
    }
    MUST(!memcmp(again, options, table->struct_bytes));
    options_echo(table, options, &json);
    MUST(json_check(text_string(&json)));
    text_free(&value);
    text_free(&json);
    free(again);
}

static void options_lines(char *lines)
{
    for (size_t i = 0; kernels[i]; i++) {
        const struct option_table *table = &kernels[i]->options;
        void *options = memory_new(1, table->struct_bytes);
        char *copy = strdup(lines), *rest = NULL;
        options_default(table, options);
        for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            struct failure failure = {0};
            char *value = strchr(line, ' ');
            if (value)
                *value++ = '\0';
            if (!options_set(table, options, line, value ? value : "", &failure))
                must_explain(&failure);
        }
        options_round(table, options);
        free(copy);
        free(options);
    }
}

static void command_line(char *words)
{
    enum { WORDS_MAX = 64 };
    char *argv[WORDS_MAX + 1] = {NULL}, *rest = NULL;
    int argc = 0;
    for (char *word = strtok_r(words, " \n", &rest); word && argc < WORDS_MAX; word = strtok_r(NULL, " \n", &rest))
        argv[argc++] = word;
    for (size_t i = 0; kernels[i]; i++) {
        const char *to = NULL, *port = NULL, *ports = NULL;
        const struct flag flags[] = {{"to", &to}, {"port", &port}, {"ports", &ports}};
        struct failure failure = {0};
        struct port_range range = {0};
        unsigned number = 0;
        void *options = memory_new(1, kernels[i]->options.struct_bytes);
        options_default(&kernels[i]->options, options);
        bool ok = arguments_parse(argc, argv, 0, flags, ROW_COUNT(flags), &kernels[i]->options, options, &failure);
        if (ok)
            options_round(&kernels[i]->options, options);
        ok = ok && (!port || arguments_port("port", port, &number, &failure)) &&
             (!ports || arguments_ports(ports, &range, &failure));
        if (!ok)
            must_explain(&failure);
        MUST(number <= 65535);
        free(options);
    }
}

/* The path of an anonymous file with this content. */
static int file_of(const char *content, char *path, size_t path_bytes)
{
    int descriptor = memfd_create("fuzz", 0);
    size_t length = strlen(content);
    MUST(descriptor >= 0 && write(descriptor, content, length) == (ssize_t)length);
    snprintf(path, path_bytes, "/proc/self/fd/%d", descriptor);
    return descriptor;
}

static char *second_part(char *text)
{
    char *mark = strstr(text, "----\n");
    if (!mark)
        return text + strlen(text);
    *mark = '\0';
    return mark + strlen("----\n");
}

static void tournament(char *text)
{
    char path[64], spool_path[64];
    const char *spool_text = second_part(text);
    int file = file_of(text, path, sizeof path), spool = file_of(spool_text, spool_path, sizeof spool_path);
    struct tournament read = {0};
    struct failure failure = {0};
    if (tournament_read(path, &program, &read, &failure)) {
        MUST(spool_mark(spool_path, &read, &failure));
        for (size_t i = 0; i < read.step_count; i++) {
            MUST(read.steps[i].test < read.test_count);
            tournament_ours(&read, &read.steps[i]);
            for (size_t j = 0; j < read.steps[i].match_count; j++)
                MUST(read.steps[i].matches[j].client < read.node_count && read.steps[i].matches[j].server < read.node_count);
        }
    } else {
        must_explain(&failure);
    }
    tournament_free(&read);
    close(file);
    close(spool);
}

static void evidence(char *text)
{
    struct counters before = {0}, after = {0};
    if (strlen(text) < 2)
        return;
    size_t which = (size_t)((unsigned char)text[0] % 10 * 10 + (unsigned char)text[1] % 10) % source_count;
    const char *later = second_part(text + 2);
    source_parse(&sources[which], text + 2, later, &before, &after);
    counters_index(&before);
    for (size_t i = 0; i < after.count; i++) {
        uint64_t delta = 0;
        size_t found = counters_find(&before, counters_name(&after, i), i);
        MUST(found <= before.count);
        if (found < before.count)
            counter_delta(before.list[found].value, after.list[i].value, &delta);
    }
    counters_free(&before);
    counters_free(&after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *text = memory_new(size, 1); /* the rest, ending in NUL */
    memcpy(text, data + 1, size - 1);
    switch (data[0]) {
    case 'h':
    case 'r':
        stranger(data + 1, size - 1, data[0] == 'r');
        break;
    case 'm':
        peer(data + 1, size - 1);
        break;
    case 'o':
        options_lines(text);
        break;
    case 'a':
        command_line(text);
        break;
    case 't':
        tournament(text);
        break;
    case 's':
        evidence(text);
        break;
    case 'j':
        json_check(text);
        break;
    default:
        break;
    }
    free(text);
    return 0;
}
