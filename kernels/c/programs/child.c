/* See child.h. */
#include "programs/child.h"

#include "base/clock.h"
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const double last_words_s = 0.3, term_s = 1;

void words_add(struct words *words, const char *word)
{
    char **list = realloc(words->list, (words->count + 2) * sizeof *list), *copy = strdup(word);
    if (!list || !copy) {
        fputs("error: out of memory\n", stderr);
        exit(EXIT_SYSTEM);
    }
    list[words->count++] = copy;
    list[words->count] = NULL;
    words->list = list;
}

void words_free(struct words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->list[i]);
    free(words->list);
    *words = (struct words){0};
}

static void child_become(const struct words *words, const char *folder, int out, int err, int report, pid_t parent)
{
    sigset_t none;
    int input = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL); /* we ignore them, and exec() would pass that on */
    signal(SIGXFSZ, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setenv("LC_ALL", "C", 1); /* numbers with a point */
    if (getppid() == parent && input >= 0 && dup2(input, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0 &&
        (!folder || !chdir(folder)))
        execvp(words->list[0], words->list);
    int error = errno;
    if (write(report, &error, sizeof error) < 0)
        _exit(126);
    _exit(127);
}

static void descriptor_close(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

bool child_start(struct child *child, const struct words *words, const char *folder, struct failure *failure)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, report[2] = {-1, -1}, error = 0;
    if (!words->count)
        return fail(failure, EXIT_USAGE, "programs file: found no words of a command: allowed: one or more");
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC) || pipe2(report, O_CLOEXEC))
        return fail_system(failure, "pipe");
    *child = (struct child){.descriptors = {out[0], err[0]}, .start_ns = clock_now_ns()};
    fflush(NULL);
    pid_t parent = getpid();
    child->pid = fork();
    if (child->pid == 0)
        child_become(words, folder, out[1], err[1], report[1], parent);
    close(out[1]);
    close(err[1]);
    close(report[1]);
    if (child->pid > 0)
        setpgid(child->pid, child->pid); /* in both processes: whoever comes first */
    ssize_t got;
    while ((got = read(report[0], &error, sizeof error)) < 0 && errno == EINTR) {
    }
    close(report[0]);
    if (child->pid > 0 && got != (ssize_t)sizeof error) {
        fcntl(out[0], F_SETFL, O_NONBLOCK);
        fcntl(err[0], F_SETFL, O_NONBLOCK);
        return true;
    }
    if (child->pid > 0)
        waitpid(child->pid, NULL, 0);
    child->pid = 0;
    descriptor_close(&child->descriptors[0]);
    descriptor_close(&child->descriptors[1]);
    errno = error ? error : errno;
    return fail_system(failure, "%s", words->list[0]);
}

static void child_read(struct child *child, size_t which)
{
    char piece[65536];
    ssize_t got;
    struct text *stream = &child->streams[which];
    while ((got = read(child->descriptors[which], piece, sizeof piece)) > 0) {
        size_t room = CHILD_OUTPUT_MAX - stream->length, taken = (size_t)got < room ? (size_t)got : room;
        text_add(stream, piece, taken);
        child->cut = child->cut || taken < (size_t)got;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
        descriptor_close(&child->descriptors[which]);
}

static void child_reap(struct child *child)
{
    if (!child->ended && wait4(child->pid, &child->status, WNOHANG, &child->usage) == child->pid) {
        child->ended = true;
        child->end_ns = clock_now_ns();
    }
}

bool child_turn(struct child *child, int wait_ms)
{
    if (!child->pid)
        return true;
    bool open = child->descriptors[0] >= 0 || child->descriptors[1] >= 0;
    struct pollfd pollers[2] = {{.fd = child->descriptors[0], .events = POLLIN},
                                {.fd = child->descriptors[1], .events = POLLIN}};
    /* A program that has closed its output but lives is looked at every few ms. */
    poll(pollers, 2, open || child->ended ? wait_ms : wait_ms < 5 ? wait_ms : 5);
    for (size_t i = 0; i < 2; i++)
        if (pollers[i].revents)
            child_read(child, i);
    child_reap(child);
    if (!child->ended || (child->descriptors[0] < 0 && child->descriptors[1] < 0))
        return child->ended;
    /* What it started may still hold its output. */
    if (clock_now_ns() - child->end_ns < clock_ns_from_s(last_words_s))
        return false;
    kill(-child->pid, SIGKILL);
    descriptor_close(&child->descriptors[0]);
    descriptor_close(&child->descriptors[1]);
    return true;
}

void child_end(struct child *child)
{
    if (!child->pid || (child->ended && child->descriptors[0] < 0 && child->descriptors[1] < 0))
        return;
    child_reap(child);
    child->killed = child->killed || !child->ended;
    kill(-child->pid, SIGTERM);
    uint64_t deadline = clock_now_ns() + clock_ns_from_s(term_s);
    while (!child_turn(child, 20) && clock_now_ns() < deadline) {
    }
    kill(-child->pid, SIGKILL);
    while (!child_turn(child, 20)) {
    }
}

bool child_wait(struct child *child, double limit_s)
{
    uint64_t deadline = child->start_ns + clock_ns_from_s(limit_s);
    while (!child_turn(child, 50)) {
        if (clock_now_ns() < deadline && !signals_stop())
            continue;
        child->timed_out = !child->ended && !signals_stop();
        child_end(child);
        return false;
    }
    return true;
}

int child_code(const struct child *child)
{
    if (!child->ended)
        return -1;
    return WIFEXITED(child->status) ? WEXITSTATUS(child->status) : 128 + WTERMSIG(child->status);
}

static void child_streams(const struct child *child, struct text *json)
{
    static const char *const names[] = {"output", "errors"};
    for (size_t i = 0; i < 2; i++) {
        json_key(json, names[i]);
        json_string(json, text_string(&child->streams[i]));
    }
    json_key(json, "cut");
    json_boolean(json, child->cut);
}

void child_json(const struct child *child, const struct words *words, const char *version, struct text *json)
{
    json_open(json, '{');
    json_key(json, "command");
    json_open(json, '[');
    for (size_t i = 0; i < words->count; i++)
        json_string(json, words->list[i]);
    json_close(json, ']');
    json_key(json, "version");
    json_string(json, version);
    json_key(json, "exit_code");
    if (child->ended)
        json_integer(json, child_code(child));
    else
        json_null(json);
    json_key(json, "timed_out");
    json_boolean(json, child->timed_out);
    json_key(json, "killed");
    json_boolean(json, child->killed);
    json_key(json, "elapsed_ns");
    json_unsigned(json, child->ended ? child->end_ns - child->start_ns : 0);
    child_streams(child, json);
    json_close(json, '}');
}

void child_last_words(const struct child *child, char *out, size_t size)
{
    const struct text *stream = child->streams[1].length ? &child->streams[1] : &child->streams[0];
    const char *text = text_string(stream), *end = text + strlen(text);
    while (end > text && (end[-1] == '\n' || end[-1] == ' ' || end[-1] == '}'))
        end--;
    const char *begin = end;
    while (begin > text && begin[-1] != '\n')
        begin--;
    while (begin < end && (*begin == ' ' || *begin == '\t'))
        begin++;
    snprintf(out, size, "%.*s", (int)(end - begin), begin);
}

void child_free(struct child *child)
{
    child_end(child);
    for (size_t i = 0; i < 2; i++) {
        descriptor_close(&child->descriptors[i]);
        text_free(&child->streams[i]);
    }
    child->pid = 0;
}
