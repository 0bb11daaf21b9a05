/* mpi_pingpong: MPI_Send and MPI_Recv of one message there and back, one at a time. */
#include "engine/round_trip.h"
#include "mpi/mpi_run.h"

#include <math.h>
#include <stdlib.h>

enum { TAG_PING = 1 };

struct mpi_pingpong_options {
    struct common_options common;
    int64_t message_bytes;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct mpi_pingpong_options, message_bytes, 8, 0, 1073741824, "bytes each way"),
    OPTION_ROWS_COMMON(struct mpi_pingpong_options),
};

struct mpi_pingpong_metrics {
    struct common_metrics common;
    struct round_trip_metrics round_trip;
    double operation_count, throughput_bps;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_ROUND_TRIP(struct mpi_pingpong_metrics),
    METRIC_ROW(struct mpi_pingpong_metrics, operation_count, BETTER_NONE, "round trips measured"),
    METRIC_ROW(struct mpi_pingpong_metrics, throughput_bps, BETTER_HIGHER,
               "message bits over half the median round trip; left out when message_bytes is 0"),
    METRIC_ROWS_COMMON(struct mpi_pingpong_metrics),
};

struct mpi_pingpong {
    char *buffer;
    int bytes;
};

static bool mpi_pingpong_open(struct run *run)
{
    struct mpi_pingpong *state = run->state;
    const struct mpi_pingpong_options *options = run->options;
    state->bytes = (int)options->message_bytes;
    state->buffer = memory_new((size_t)options->message_bytes, 1);
    return true;
}

static void mpi_pingpong_begin(struct run *run)
{
    (void)run;
}

static enum step mpi_pingpong_step(struct run *run)
{
    struct mpi_pingpong *state = run->state;
    int rc, peer = run->is_active ? 1 : 0;
    uint64_t start_ns = clock_now_ns();
    if (run->is_active) {
        rc = MPI_Send(state->buffer, state->bytes, MPI_BYTE, peer, TAG_PING, mpi_run_communicator(run));
        if (rc == MPI_SUCCESS)
            rc = MPI_Recv(state->buffer, state->bytes, MPI_BYTE, peer, TAG_PING, mpi_run_communicator(run),
                          MPI_STATUS_IGNORE);
    } else {
        rc = MPI_Recv(state->buffer, state->bytes, MPI_BYTE, peer, TAG_PING, mpi_run_communicator(run),
                      MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS)
            rc = MPI_Send(state->buffer, state->bytes, MPI_BYTE, peer, TAG_PING, mpi_run_communicator(run));
    }
    run->now_ns = clock_now_ns();
    if (!mpi_run_check(run, rc, "ping-pong"))
        return STEP_FAILED;
    if (run->is_active)
        run_round_trip(run, run->now_ns - start_ns);
    return STEP_OPERATION;
}

static void mpi_pingpong_report(struct run *run)
{
    const struct mpi_pingpong *state = run->state;
    struct mpi_pingpong_metrics *metrics = run->metrics;
    if (!run->is_active)
        return;
    round_trip_fill(run->histogram, &metrics->round_trip);
    metrics->operation_count = (double)run->operation_count;
    if (state->bytes && metrics->round_trip.round_trip_p50_ns > 0)
        metrics->throughput_bps = (double)state->bytes * 16e9 / metrics->round_trip.round_trip_p50_ns;
}

static void mpi_pingpong_close(struct run *run)
{
    struct mpi_pingpong *state = run->state;
    free(state->buffer);
}

const struct kernel kernel_mpi_pingpong = {
    .name = "mpi_pingpong",
    .summary = "round trip of an MPI message between two ranks",
    .method =
        "Rank 0 stamps the time before MPI_Send(), receives the same number of bytes back with MPI_Recv() and stamps "
        "again: one sample is the full round trip, not half of it. One message is under way at a time, from and into "
        "the "
        "same (cache-warm) buffer. Ranks agree on the number of operations of each batch of some 10 ms beforehand.",
    .size_option = "message_bytes",
    .options = OPTION_TABLE(option_rows, struct mpi_pingpong_options),
    .metrics = METRIC_TABLE(metric_rows, struct mpi_pingpong_metrics),
    .state_bytes = sizeof(struct mpi_pingpong),
    .round_trips = true,
    .open = mpi_pingpong_open,
    .begin = mpi_pingpong_begin,
    .step = mpi_pingpong_step,
    .report = mpi_pingpong_report,
    .close = mpi_pingpong_close,
};
