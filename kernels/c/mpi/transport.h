/* Over what an MPI library sends: a plain word, turned into the settings of each library; and what it then used. */
#ifndef HPCQ_MPI_TRANSPORT_H
#define HPCQ_MPI_TRANSPORT_H

#include "engine/run.h"

enum transport { TRANSPORT_AS_IS, TRANSPORT_TCP, TRANSPORT_SHARED_MEMORY, TRANSPORT_UCX, TRANSPORT_OFI };
extern const char *const transports[]; /* NULL-terminated */

#define OPTION_TRANSPORT_ROW(type)                                                                                     \
    OPTION_CHOICE_ROW(type, transport, transports,                                                                     \
                      "over what the library sends, with the interface under test; as_is: as its own settings say")

/* Before MPI_Init(): sets what Open MPI, MPICH, Intel MPI, UCX and libfabric read, whichever of them this is. A word
 * that is no transport is left to the check of the options. interface: may be NULL. */
void transport_set(const char *word, const char *interface);

/* After MPI_Init(): false, with the reason, where this library cannot send so (MPICH is built for one of UCX and OFI;
 * ranks of different machines share no memory). mine, first: the processor names of this rank and of rank 0. */
bool transport_fits(struct run *run, const char *mine, const char *first);

/* After the measurement: the library's version, the variables that steer it, which of its parts are loaded, and over
 * which interfaces this process is connected, as granted values. */
void transport_granted(struct run *run);

#endif
