/* How two ranks exchange messages: the calls that one operation of a kernel between two ranks consists of. */
#ifndef HPCQ_MPI_BETWEEN_TWO_H
#define HPCQ_MPI_BETWEEN_TWO_H

#include "mpi/exchange.h"

enum { TAG_MESSAGE = 1, TAG_ANSWER = 6, WINDOW_MAX = 1024, ELEMENT_BYTES = 8 };
enum call { CALL_BLOCKING, CALL_SYNCHRONOUS, CALL_NONBLOCKING, CALL_PERSISTENT };
enum direction { CLIENT_TO_SERVER, SERVER_TO_CLIENT, BOTH };

struct p2p {
    struct buffers buffers;
    struct times times;
    MPI_Comm communicator;
    MPI_Datatype type;
    MPI_Request requests[2 * WINDOW_MAX];
    MPI_Status statuses[2 * WINDOW_MAX]; /* MPICH declares MPI_STATUSES_IGNORE so that gcc warns of it */
    MPI_Request persistent_send, persistent_receive;
    int count, peer, source, window;
    enum call call;
    enum direction direction;
    bool has_type, validate;
    unsigned operation_no;
    int (*exchange)(struct p2p *state, bool is_active);
};

/* Each returns what MPI does. */
int p2p_pingpong(struct p2p *state, bool is_active);
int p2p_pingping(struct p2p *state, bool is_active);
int p2p_stream(struct p2p *state, bool is_active);

#endif
