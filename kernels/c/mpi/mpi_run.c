/*   rank 0                                the other ranks
 *     { batch {count, settle}  ->  (one operation that is not measured, then) count operations } ...  count 0 ends it
 *     warm-up, then all take the "before" snapshot, barrier, measurement, all take the "after" snapshot
 *                                      <-  rank 1: report (as text, the same as on the control channel of hpcq-net)
 *
 * A rank that has sent the batch message is ahead of one that still receives it: the first operation of a batch would
 * take the difference. So an operation goes before it that is not measured, unless operations take so long that it
 * does not matter. */
#include "mpi/mpi_run.h"

#include "base/signals.h"
#include "engine/report.h"
#include "engine/sweep.h"
#include "mpi/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_REPORT = 3, RANK_CLIENT = 0 };
static const uint64_t batch_ns = 10000000; /* between looks at the clock and at signals */
static const uint64_t settle_ns = 2000000; /* operations shorter than this begin with one that is not measured */

struct batch {
    uint64_t count, settle;
};

bool mpi_run_check(struct run *run, int rc, const char *what)
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (rc == MPI_SUCCESS)
        return true;
    MPI_Error_string(rc, words, &length);
    return fail(&run->failure, EXIT_PEER, "%s: %.300s", what, words);
}

static uint64_t batch_next(const struct run *run, uint64_t end_ns, uint64_t limit, uint64_t last, uint64_t took_ns)
{
    if (signals_stop() || run->now_ns >= end_ns || (limit && run->operation_count >= limit))
        return 0;
    double next = last ? (double)last * (double)batch_ns / (double)(took_ns ? took_ns : 1) : 1;
    if (last && next > 4 * (double)last)
        next = 4 * (double)last; /* the first operations are slow: do not jump from them */
    uint64_t count = next < 1 ? 1 : next > MPI_BATCH_MAX ? MPI_BATCH_MAX : (uint64_t)next;
    return limit && count > limit - run->operation_count ? limit - run->operation_count : count;
}

static bool batch_run(struct run *run, struct batch batch)
{
    if (!batch.count)
        return true;
    run->now_ns = clock_now_ns();
    run->settling = true;
    if (batch.settle && run->kernel->step(run) == STEP_FAILED)
        return false;
    run->settling = false;
    for (uint64_t i = 0; i < batch.count; i++) {
        if (run->kernel->step(run) == STEP_FAILED)
            return false;
        run->operation_count++;
    }
    return run->kernel->batch_end(run);
}

static bool batch_agree(struct run *run, struct batch *batch)
{
    return mpi_run_check(run, MPI_Bcast(batch, 2, MPI_UINT64_T, RANK_CLIENT, mpi_run_communicator(run)), "batch");
}

static bool phase_client(struct run *run, double duration_s, uint64_t limit)
{
    uint64_t end_ns = run->phase_start_ns + clock_ns_from_s(duration_s), took_ns = 0;
    struct batch batch = {0, 1};
    do {
        batch.settle = !batch.count || took_ns / batch.count < settle_ns;
        batch.count = batch_next(run, end_ns, limit, batch.count, took_ns);
        uint64_t before_ns = clock_now_ns();
        if (!batch_agree(run, &batch) || !batch_run(run, batch))
            return false;
        took_ns = clock_now_ns() - before_ns;
    } while (batch.count);
    return true;
}

static bool phase_server(struct run *run)
{
    struct batch batch = {0, 0};
    do {
        if (!batch_agree(run, &batch) || !batch_run(run, batch))
            return false;
    } while (batch.count);
    return true;
}

static bool mpi_phase(struct run *run, enum phase phase)
{
    const struct common_options *common = run_common(run);
    bool measure = phase == PHASE_MEASURE;
    run->phase = phase;
    run->operation_count = 0;
    run->kernel->begin(run);
    if (measure)
        run_start(run);
    if (!mpi_run_check(run, MPI_Barrier(mpi_run_communicator(run)), "barrier"))
        return false;
    run_state(run, measure ? "measure" : "warmup", 0);
    getrusage(RUSAGE_SELF, &run->usage_start);
    run->phase_start_ns = run->now_ns = clock_now_ns();
    bool ok = run->is_server ? phase_server(run)
                             : phase_client(run, measure ? common->duration_s : common->warmup_s,
                                            measure ? (uint64_t)common->operation_count_max : 0);
    run->phase_end_ns = clock_now_ns();
    getrusage(RUSAGE_SELF, &run->usage_end);
    run->usage_end_ns = clock_now_ns();
    if (ok && signals_stop())
        return fail(&run->failure, EXIT_INVALID, "interrupted by signal %d", signals_stop());
    return ok;
}

static bool mpi_report_send(struct run *run)
{
    struct text out = {0};
    report_write(run, &out);
    int rc = MPI_Send(out.data, (int)out.length, MPI_CHAR, RANK_CLIENT, TAG_REPORT, mpi_run_communicator(run));
    text_free(&out);
    return mpi_run_check(run, rc, "report");
}

static bool mpi_report_receive(struct run *run)
{
    struct received message = {0};
    MPI_Status status;
    int length = 0;
    if (!mpi_run_check(run, MPI_Probe(run->server_rank, TAG_REPORT, mpi_run_communicator(run), &status), "report"))
        return false;
    MPI_Get_count(&status, MPI_CHAR, &length);
    message.payload = memory_new((size_t)length + 1, 1);
    message.length = (size_t)length;
    int rc = MPI_Recv(message.payload, length, MPI_CHAR, run->server_rank, TAG_REPORT, mpi_run_communicator(run),
                      MPI_STATUS_IGNORE);
    bool ok = mpi_run_check(run, rc, "report") &&
              (received_split(&message) || fail(&run->failure, EXIT_PEER, "report: malformed"));
    if (ok)
        report_read(run, &message);
    received_free(&message);
    return ok;
}

/* Of more than two ranks, one of the second node reports for all but rank 0; what made any of them invalid holds for
 * all. */
static bool mpi_report(struct run *run)
{
    int rank = 0, mine, bad = MPI_PROC_NULL, size = 0;
    MPI_Comm communicator = mpi_run_communicator(run);
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &size);
    mine = run->invalid ? rank : -1;
    if (!mpi_run_check(run, MPI_Allreduce(&mine, &bad, 1, MPI_INT, MPI_MAX, communicator), "report") ||
        !mpi_run_check(
            run, MPI_Bcast(run->invalid_reason, sizeof run->invalid_reason, MPI_CHAR, bad < 0 ? 0 : bad, communicator),
            "report"))
        return false;
    run->invalid = bad >= 0;
    if (rank == RANK_CLIENT)
        return size == 1 || mpi_report_receive(run);
    return rank != run->server_rank || mpi_report_send(run);
}

static void mpi_same_node(struct run *run)
{
    char mine[MPI_MAX_PROCESSOR_NAME] = "";
    const char *peer = NULL;
    int length = 0;
    MPI_Get_processor_name(mine, &length);
    for (size_t i = 0; i < run->granted.count; i++)
        if (!strcmp(run->granted.list[i].name, "server_mpi_processor_name"))
            peer = run->granted.list[i].value;
    if (peer && strlen(peer) == strlen(mine) + 2 && !strncmp(peer + 1, mine, strlen(mine)))
        run_warn(run, "same_node", "both ranks ran on %s: no network was measured", mine);
}

/* Both ranks leave together: when one cannot go on, neither starts. */
static bool mpi_agree(struct run *run, bool ok)
{
    int mine = ok, all = 0;
    if (!mpi_run_check(run, MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, mpi_run_communicator(run)), "agree"))
        return false;
    return all || fail(&run->failure, EXIT_PEER, "the other rank could not start; its own message says why");
}

/* All ranks call it. */
static bool mpi_fits(struct run *run)
{
    char mine[MPI_MAX_PROCESSOR_NAME] = "", first[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    MPI_Get_processor_name(mine, &length);
    memcpy(first, mine, sizeof first);
    return mpi_run_check(run, MPI_Bcast(first, sizeof first, MPI_CHAR, 0, mpi_run_communicator(run)), "names") &&
           transport_fits(run, mine, first);
}

static bool mpi_measure(struct run *run, const char *interface)
{
    struct address local = {.length = 0};
    const struct common_options *common = run_common(run);
    run_state(run, "start", 0);
    run->is_active = !run->is_server;
    MPI_Comm_set_errhandler(mpi_run_communicator(run), MPI_ERRORS_RETURN);
    bool ok = mpi_fits(run); /* all ranks: before anything that may fail at one of them */
    ok = ok && relations_hold(&run->kernel->options, run->options, &run->failure) &&
         (!interface || address_of_interface(interface, AF_UNSPEC, &local, &run->failure)) && run_pin(run) &&
         run->kernel->open(run);
    if (!mpi_agree(run, ok))
        return false;
    run->evidence = evidence_new(&local, interface);
    ok = (common->warmup_s <= 0 || mpi_phase(run, PHASE_WARMUP)) && mpi_phase(run, PHASE_MEASURE);
    if (ok) {
        run_finish(run);
        transport_granted(run); /* connections exist since the first message */
        run_state(run, "report", 0);
        ok = mpi_report(run);
        if (ok && !run->is_server)
            mpi_same_node(run);
    }
    run->kernel->close(run);
    return ok;
}

static bool mpi_run_size(struct run *one, void *context)
{
    return mpi_measure(one, *(const char **)context);
}

int mpi_run(struct run *run, const char *interface, struct result_out *out)
{
    return sweep_run(run, mpi_run_size, &interface, out);
}
