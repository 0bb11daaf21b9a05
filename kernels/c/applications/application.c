/* See application.h. */
#include "applications/application.h"

#include "base/signals.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

enum { ROOT = 0, ALONE_COUNT = 3 };

bool application_new(struct run *run, struct application *application, struct ranks_asked asked)
{
    application->communicator = mpi_run_communicator(run);
    MPI_Comm_rank(application->communicator, &application->rank);
    MPI_Comm_size(application->communicator, &application->size);
    application->alone_ns = NAN;
    application->on_node = (int)asked.per_node;
    if (!ranks_place(run, asked, application->rank, application->size))
        return false;
    times_new(&application->times);
    return true;
}

void application_free(struct application *application)
{
    times_free(&application->times);
}

bool application_fits(struct run *run, const char *what, int64_t value, double bytes)
{
    double has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (bytes <= has)
        return true;
    fail(&run->failure, EXIT_USAGE, "%s: found %lld, which takes %.1f GiB: allowed: what fits into the %.1f GiB here",
         what, (long long)value, bytes / 0x1p30, has / 0x1p30);
    return fail_hint(&run->failure, "`alone: false` needs no room for all of it on rank 0");
}

void application_begin(struct application *application)
{
    application->times.count = 0;
    application->mpi_sum_ns = application->whole_ns = 0;
    application->all_left_bytes = 0;
}

bool application_operate(struct run *run, struct application *application, int (*work)(void *), void *state)
{
    if (!mpi_run_check(run, MPI_Barrier(application->communicator), "barrier"))
        return false;
    application->mpi_ns = 0;
    uint64_t start_ns = clock_now_ns();
    int rc = work(state);
    run->now_ns = clock_now_ns();
    if (!mpi_run_check(run, rc, run->kernel->name))
        return false;
    if (run->settling)
        return true;
    application->times.list[application->times.count++] = run->now_ns - start_ns;
    application->whole_ns += run->now_ns - start_ns;
    application->mpi_sum_ns += application->mpi_ns;
    application->all_left_bytes += application->left_bytes;
    return true;
}

bool application_batch_end(struct run *run, struct application *application)
{
    struct times *times = &application->times;
    bool is_root = application->rank == ROOT;
    int rc = MPI_Reduce(is_root ? MPI_IN_PLACE : times->list, is_root ? times->list : NULL, (int)times->count,
                        MPI_UINT64_T, MPI_MAX, ROOT, application->communicator);
    if (is_root && rc == MPI_SUCCESS)
        times_into(times, run);
    times->count = 0;
    return mpi_run_check(run, rc, "times of the ranks");
}

/* Not in MPI_Barrier(), which would compute for a turn to do so: rank 0 may be on the same node. */
static void sleep_until_all_are_here(MPI_Comm communicator)
{
    struct timespec pause = {.tv_nsec = 1000000};
    MPI_Request request;
    int is_over = MPI_Ibarrier(communicator, &request) != MPI_SUCCESS;
    while (!is_over && MPI_Test(&request, &is_over, MPI_STATUS_IGNORE) == MPI_SUCCESS && !is_over)
        nanosleep(&pause, NULL);
}

void application_alone(struct application *application, double limit_s, int (*work)(void *), void *state)
{
    uint64_t took_ns[ALONE_COUNT], since_ns = clock_now_ns(), now_ns = since_ns;
    int count = 0;
    while (application->rank == ROOT && count < ALONE_COUNT && !signals_stop() &&
           (!count || now_ns - since_ns < clock_ns_from_s(limit_s))) {
        uint64_t start_ns = clock_now_ns();
        if (work(state) != MPI_SUCCESS)
            break;
        now_ns = clock_now_ns();
        took_ns[count++] = now_ns - start_ns;
    }
    sleep_until_all_are_here(application->communicator);
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && took_ns[j - 1] > took_ns[j]; j--) {
            uint64_t shorter_ns = took_ns[j];
            took_ns[j] = took_ns[j - 1];
            took_ns[j - 1] = shorter_ns;
        }
    if (count)
        application->alone_ns = (double)(took_ns[(count - 1) / 2] + took_ns[count / 2]) / 2;
}

void application_report(struct run *run, const struct application *application, double moved_bytes,
                        struct operation_metrics *operation, struct application_metrics *metrics)
{
    enum { SHARE, COMPUTED_NS, MPI_NS, COLUMNS };
    double whole_ns = (double)application->whole_ns, mpi_ns = (double)application->mpi_sum_ns,
           ranks = application->size;
    double mine[COLUMNS] = {whole_ns > 0 ? mpi_ns / whole_ns : 0, whole_ns - mpi_ns, mpi_ns}, sum[COLUMNS],
           most[COLUMNS];
    MPI_Reduce(mine, sum, COLUMNS, MPI_DOUBLE, MPI_SUM, ROOT, application->communicator);
    MPI_Reduce(mine, most, COLUMNS, MPI_DOUBLE, MPI_MAX, ROOT, application->communicator);
    if (application->rank == run->server_rank)
        metrics->server_moved_bytes = application->all_left_bytes;
    if (application->rank != ROOT)
        return;
    operation_fill(run->histogram, operation);
    metrics->client_moved_bytes = application->all_left_bytes;
    metrics->operation_count = (double)run->operation_count;
    metrics->rank_count = ranks;
    metrics->communication_share_ratio = sum[SHARE] / ranks;
    metrics->communication_share_max_ratio = most[SHARE];
    metrics->communication_mean_ns = sum[MPI_NS] / ranks / (double)run->operation_count;
    metrics->imbalance_ratio = sum[COMPUTED_NS] > 0 ? most[COMPUTED_NS] / (sum[COMPUTED_NS] / ranks) - 1 : NAN;
    metrics->moved_bytes = moved_bytes;
    metrics->alone_ns = application->alone_ns;
    metrics->speed_up_ratio = application->alone_ns / operation->operation_p50_ns;
    metrics->efficiency_ratio = metrics->speed_up_ratio / ranks;
}
