/* See between_two.h. */
#include "mpi/between_two.h"

static int send_one(struct p2p *state)
{
    MPI_Request request;
    switch (state->call) {
    case CALL_SYNCHRONOUS:
        return MPI_Ssend(buffers_send(&state->buffers), state->count, state->type, state->peer, TAG_MESSAGE,
                         state->communicator);
    case CALL_NONBLOCKING: {
        int rc = MPI_Isend(buffers_send(&state->buffers), state->count, state->type, state->peer, TAG_MESSAGE,
                           state->communicator, &request);
        return rc == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
    }
    case CALL_PERSISTENT: {
        int rc = MPI_Start(&state->persistent_send);
        return rc == MPI_SUCCESS ? MPI_Wait(&state->persistent_send, MPI_STATUS_IGNORE) : rc;
    }
    case CALL_BLOCKING:
    default:
        return MPI_Send(buffers_send(&state->buffers), state->count, state->type, state->peer, TAG_MESSAGE,
                        state->communicator);
    }
}

static int receive_one(struct p2p *state)
{
    MPI_Request request;
    int rc;
    switch (state->call) {
    case CALL_NONBLOCKING:
        rc = MPI_Irecv(buffers_receive(&state->buffers), state->count, state->type, state->source, TAG_MESSAGE,
                       state->communicator, &request);
        return rc == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
    case CALL_PERSISTENT:
        rc = MPI_Start(&state->persistent_receive);
        return rc == MPI_SUCCESS ? MPI_Wait(&state->persistent_receive, MPI_STATUS_IGNORE) : rc;
    case CALL_BLOCKING:
    case CALL_SYNCHRONOUS:
    default:
        return MPI_Recv(buffers_receive(&state->buffers), state->count, state->type, state->source, TAG_MESSAGE,
                        state->communicator, MPI_STATUS_IGNORE);
    }
}

int p2p_pingpong(struct p2p *state, bool is_active)
{
    int rc = is_active ? send_one(state) : receive_one(state);
    if (rc != MPI_SUCCESS)
        return rc;
    return is_active ? receive_one(state) : send_one(state);
}

/* A send that does not wait, the receive, then both complete: as IMB has it, where `blocking` receives with MPI_Recv.
 */
int p2p_pingping(struct p2p *state, bool is_active)
{
    MPI_Request *both = state->requests;
    int rc = MPI_SUCCESS;
    (void)is_active;
    if (state->call == CALL_PERSISTENT) {
        both[0] = state->persistent_receive;
        both[1] = state->persistent_send;
        rc = MPI_Startall(2, both);
        return rc == MPI_SUCCESS ? MPI_Waitall(2, both, state->statuses) : rc;
    }
    if (state->call == CALL_NONBLOCKING)
        rc = MPI_Irecv(buffers_receive(&state->buffers), state->count, state->type, state->source, TAG_MESSAGE,
                       state->communicator, &both[1]);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = (state->call == CALL_SYNCHRONOUS ? MPI_Issend : MPI_Isend)(buffers_send(&state->buffers), state->count,
                                                                    state->type, state->peer, TAG_MESSAGE,
                                                                    state->communicator, &both[0]);
    if (rc != MPI_SUCCESS)
        return rc;
    if (state->call == CALL_NONBLOCKING)
        return MPI_Waitall(2, both, state->statuses);
    rc = MPI_Recv(buffers_receive(&state->buffers), state->count, state->type, state->source, TAG_MESSAGE,
                  state->communicator, MPI_STATUS_IGNORE);
    return rc == MPI_SUCCESS ? MPI_Wait(&both[0], MPI_STATUS_IGNORE) : rc;
}

/* All messages of a window with their requests; blocking calls have none. */
static int window_of(struct p2p *state, bool sends, bool receives)
{
    bool blocking = !(sends && receives) && (state->call == CALL_BLOCKING || state->call == CALL_SYNCHRONOUS);
    int rc = MPI_SUCCESS, under_way = 0;
    for (int i = 0; rc == MPI_SUCCESS && blocking && i < state->window; i++)
        rc = sends ? send_one(state) : receive_one(state);
    if (blocking || rc != MPI_SUCCESS)
        return rc;
    for (int i = 0; rc == MPI_SUCCESS && receives && i < state->window; i++)
        rc = MPI_Irecv(buffers_receive(&state->buffers), state->count, state->type, state->source, TAG_MESSAGE,
                       state->communicator, &state->requests[under_way++]);
    for (int i = 0; rc == MPI_SUCCESS && sends && i < state->window; i++)
        rc = (state->call == CALL_SYNCHRONOUS ? MPI_Issend : MPI_Isend)(
            buffers_send(&state->buffers), state->count, state->type, state->peer, TAG_MESSAGE, state->communicator,
            &state->requests[under_way++]);
    return rc == MPI_SUCCESS ? MPI_Waitall(under_way, state->requests, state->statuses) : rc;
}

/* Rank 0 is told that the window is whole by an empty message, whoever sends. */
int p2p_stream(struct p2p *state, bool is_active)
{
    char none = 0;
    bool sends = state->direction == BOTH || (state->direction == CLIENT_TO_SERVER) == is_active;
    bool receives = state->direction == BOTH || !sends;
    int rc = MPI_SUCCESS;
    if (state->direction == SERVER_TO_CLIENT) /* the sender begins when rank 0 has begun to count */
        rc = is_active ? MPI_Send(&none, 0, MPI_CHAR, state->peer, TAG_ANSWER, state->communicator)
                       : MPI_Recv(&none, 0, MPI_CHAR, state->peer, TAG_ANSWER, state->communicator, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS)
        rc = window_of(state, sends, receives);
    if (rc != MPI_SUCCESS || state->direction == SERVER_TO_CLIENT)
        return rc;
    return is_active ? MPI_Recv(&none, 0, MPI_CHAR, state->peer, TAG_ANSWER, state->communicator, MPI_STATUS_IGNORE)
                     : MPI_Send(&none, 0, MPI_CHAR, state->peer, TAG_ANSWER, state->communicator);
}
