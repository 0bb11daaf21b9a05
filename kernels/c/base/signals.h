/* The only mutable state at file scope: what signals have said. No SA_RESTART (but of SIGCONT), so a blocked call
 * returns with EINTR.
 *
 * SIGIO is asked for on the control channel: the test loop blocks in its own recv() and a message (or the end) of the
 * peer wakes it, without a poll() beside every recv(). The lost wake-up between the look at the flag and the recv() is
 * bounded by the socket's receive time-out. */
#ifndef HPCQ_SIGNALS_H
#define HPCQ_SIGNALS_H

#include <stdbool.h>

void signals_install(void); /* TERM and INT set `stop`, SIGIO sets `control`, CONT is kept in mind, PIPE is ignored */
int signals_stop(void);     /* the signal that asked us to end, or 0 */
void signals_forget(void);  /* that one: it was heeded, and the next one counts again */
bool signals_continued(
    void); /* has SIGCONT come since the call to signals_continued_forget? Then this process stood still */
void signals_continued_forget(void);
bool signals_control(void); /* has the control channel moved since the last call to signals_control_seen? */
void signals_control_seen(void);
void signals_alarm(bool interrupt); /* SIGALRM interrupts a blocked call (true) or ends the process (false) */
bool signals_watch(int descriptor); /* ask for SIGIO on this socket */

#endif
