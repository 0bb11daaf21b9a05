/* The child runs the client as `hpcq-net KERNEL` does and writes two lines into a pipe: the result, and all counters
 * (an empty line unless they were asked for). See agent_play.h. */
#include "tournament/agent_play.h"

#include "engine/client.h"
#include "engine/keep.h"
#include "engine/result.h"
#include "engine/sessions.h"
#include "tournament/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool play_options(struct run *run, const struct received *message)
{
    const char *cursor = NULL, *name, *value;
    while ((name = received_next(message, "option.", &cursor, &value)))
        if (!options_set(&run->kernel->options, run->options, name, value, &run->failure))
            return false;
    return true;
}

static void play_child(const struct play_place *place, const struct kernel *kernel, const struct received *message,
                       int to, pid_t parent)
{
    struct run run;
    /* The pipe gets the line when all of it is there; what is measured until then must outlive us all. */
    struct result_out out = {.descriptor = spool_sizes_open(received_get(message, "sizes"))};
    struct text all = {0};
    struct client_place client = {.to = received_get(message, "to"),
                                  .interface = place->interface,
                                  .secret_path = place->secret_path,
                                  .programs_path = place->programs_path,
                                  .port = (unsigned)received_unsigned(message, "port"),
                                  .timeout_s = received_number(message, "timeout_s")};
    const char *raw = received_get(message, "raw"), *done = received_get(message, "sizes_done");
    const char *capture = received_get(message, "capture");
    for (size_t i = 0; i < place->inherited_count; i++)
        close(place->inherited[i]);
    sessions_child(parent);
    run_begin(&run, place->program, kernel, false);
    run.keep.evidence_asked = received_unsigned(message, "evidence_full");
    run.keep.raw_folder = raw && *raw ? raw : NULL;
    run.keep.capture_path = capture && *capture ? capture : NULL;
    run.sizes_done = done && *done ? done : NULL;
    int code;
    if (play_options(&run, message)) {
        code = client_run(&run, &client, &out);
    } else {
        result_json(&run, &out.json);
        code = result_exit_code(&run);
    }
    text_add(&out.json, "\n", 1);
    if (run.keep.evidence_asked && keep_evidence(&run, &all))
        text_add(&out.json, all.data, all.length);
    text_add(&out.json, "\n", 1);
    code = text_write(&out.json, 0, to) ? code : EXIT_SYSTEM;
    text_free(&out.json);
    text_free(&all);
    run_end(&run);
    exit(code);
}

bool play_start(struct play *play, const struct play_place *place, const struct received *message,
                struct failure *failure)
{
    int ends[2];
    const char *name = received_get(message, "kernel");
    const struct kernel *kernel = name ? program_kernel(place->program, name) : NULL;
    play_kill(play);
    if (!kernel || !received_get(message, "to"))
        return fail(failure, EXIT_PEER, "play: %.64s: no such kernel here", name ? name : "nothing");
    if (pipe2(ends, O_CLOEXEC))
        return fail_system(failure, "pipe");
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        play_child(place, kernel, message, ends[1], parent);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return fail_system(failure, "fork");
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    text_clear(&play->line);
    play->no = received_unsigned(message, "no");
    play->child = child;
    play->descriptor = ends[0];
    play->status = -1;
    return true;
}

int play_descriptor(const struct play *play)
{
    return play->child ? play->descriptor : -1;
}

void play_read(struct play *play)
{
    char piece[65536];
    ssize_t got;
    while ((got = read(play->descriptor, piece, sizeof piece)) > 0)
        text_add(&play->line, piece, (size_t)got);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    close(play->descriptor);
    play->descriptor = -1;
    if (play->status < 0 && waitpid(play->child, &play->status, 0) != play->child)
        play->status = 0x7f00;
}

void play_ended(struct play *play, pid_t child, int status)
{
    if (child == play->child)
        play->status = status;
}

bool play_result(struct play *play, struct text *message)
{
    if (!play->child || play->descriptor >= 0)
        return false;
    char *evidence = play->line.data ? strchr(play->line.data, '\n') : NULL;
    message_begin(message, "result");
    message_put_unsigned(message, "no", play->no);
    message_put_unsigned(
        message, "rc", (uint64_t)(WIFEXITED(play->status) ? WEXITSTATUS(play->status) : 128 + WTERMSIG(play->status)));
    if (evidence) {
        *evidence++ = '\0';
        evidence[strcspn(evidence, "\n")] = '\0';
        message_put(message, "evidence", evidence);
    }
    message_put(message, "line", evidence ? play->line.data : "");
    play->child = 0;
    text_free(&play->line);
    return true;
}

void play_kill(struct play *play)
{
    if (!play->child)
        return;
    kill(play->child, SIGKILL);
    if (play->status < 0)
        waitpid(play->child, NULL, 0);
    if (play->descriptor >= 0)
        close(play->descriptor);
    play->descriptor = -1;
    play->child = 0;
}

void play_free(struct play *play)
{
    play_kill(play);
    text_free(&play->line);
}
