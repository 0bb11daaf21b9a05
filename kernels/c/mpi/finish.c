#include "mpi/finish.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40200000
/* MPICH before 4.2 disconnects from each rank over UCX, then meets the others in a barrier of the launcher. A rank in
 * that barrier no longer moves UCX, and a rank that still disconnects needs it: over TCP half of all runs hung there,
 * and the launcher called one in twenty failed (pmodels/mpich pull request 6596). The library calls this function of
 * ours in place of UCX's. Every message has arrived by then, and UCX closes what is open when it ends. */
void *ucp_disconnect_nb(void *endpoint);

void *ucp_disconnect_nb(void *endpoint)
{
    (void)endpoint;
    return NULL; /* UCS_OK: done at once */
}
#endif

static volatile sig_atomic_t finish_code;

static void on_finish_limit(int number)
{
    (void)number;
    _exit(finish_code);
}

int mpi_finish(int code, unsigned limit_s)
{
    struct sigaction action = {.sa_handler = on_finish_limit};
    fflush(NULL);
    finish_code = code;
    sigaction(SIGALRM, &action, NULL);
    alarm(limit_s);
    MPI_Finalize();
    alarm(0);
    return code;
}
