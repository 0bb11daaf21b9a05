/* See signals.h. */
#include "base/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stop_signal;
static volatile sig_atomic_t control_moved;
static volatile sig_atomic_t continued;

static void on_stop(int number)
{
    stop_signal = number;
}

static void on_control(int number)
{
    (void)number;
    control_moved = 1;
}

static void on_continue(int number)
{
    (void)number;
    continued = 1;
}

static void install(int number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = number == SIGCONT ? SA_RESTART : 0;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void signals_install(void)
{
    install(SIGTERM, on_stop);
    install(SIGINT, on_stop);
    install(SIGIO, on_control);
    install(SIGCONT, on_continue);
    install(SIGPIPE, SIG_IGN);
}

void signals_alarm(bool interrupt)
{
    install(SIGALRM, interrupt ? on_control : SIG_DFL);
}

int signals_stop(void)
{
    return stop_signal;
}

void signals_forget(void)
{
    stop_signal = 0;
}

bool signals_continued(void)
{
    return continued;
}

void signals_continued_forget(void)
{
    continued = 0;
}

bool signals_control(void)
{
    return control_moved;
}

void signals_control_seen(void)
{
    control_moved = 0;
}

bool signals_watch(int descriptor)
{
    int flags = fcntl(descriptor, F_GETFL);
    return flags >= 0 && fcntl(descriptor, F_SETOWN, getpid()) == 0 && fcntl(descriptor, F_SETFL, flags | O_ASYNC) == 0;
}
