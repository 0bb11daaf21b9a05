/* mpi_matrix_multiply: C = A B of square matrices of doubles, by rows over all ranks.
 *
 *   each rank holds its rows of A, B and C
 *   each panel of rows of B   its owner gives it to all (MPI_Bcast) | all add to their rows of C what it brings
 *   checked, not timed        A (B r) = C r of a random vector r (Freivalds 1977), row by row
 */
#include "applications/application.h"
#include "mpi/transport.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_ROWS = 4, TILE_COLUMNS = 4, PANEL_ROWS_MAX = 1024 };
enum stream { STREAM_A = 1, STREAM_B, STREAM_VECTOR };

struct multiply_options {
    struct common_options common;
    int64_t matrix_row_count, panel_row_count, node_count, ranks_per_node, rank_binding, transport, alone;
};

static const struct option_row option_rows[] = {
    OPTION_INTEGER_ROW(struct multiply_options, matrix_row_count, 512, 1, 16384,
                       "rows and columns of each of the three matrices, of all ranks together"),
    OPTION_INTEGER_ROW(struct multiply_options, panel_row_count, 64, 1, PANEL_ROWS_MAX,
                       "rows that a rank gives to all others in one message"),
    OPTION_ROWS_RANKS(struct multiply_options),
    OPTION_TRANSPORT_ROW(struct multiply_options),
    OPTION_BOOLEAN_ROW(struct multiply_options, alone, 1,
                       "rank 0 then does the same alone, for speed_up_ratio: it needs room for all of the matrices"),
    OPTION_ROWS_COMMON(struct multiply_options),
};

static const struct option_relation relations[] = {{"matrix_row_count", RELATION_AT_LEAST, .other = "node_count"}};

struct multiply_metrics {
    struct common_metrics common;
    struct operation_metrics operation;
    struct application_metrics application;
    double rate_flops, alone_flops;
};

static const struct metric_row metric_rows[] = {
    METRIC_ROWS_OPERATION(struct multiply_metrics),
    METRIC_ROW(struct multiply_metrics, rate_flops, BETTER_HIGHER,
               "floating-point operations per second of all ranks: 2 matrix_row_count^3 over operation_p50_ns"),
    METRIC_ROW(struct multiply_metrics, alone_flops, BETTER_NONE, "the same of rank 0 alone, over alone_ns"),
    METRIC_ROWS_APPLICATION(struct multiply_metrics),
    METRIC_ROWS_COMMON(struct multiply_metrics),
};

/* One multiplication, over all ranks of a communicator: all of them, or one. */
struct product {
    struct application *application;
    MPI_Comm communicator;
    int rank, size;
    size_t order, first, rows, panel_rows; /* this rank has rows first to first + rows - 1 */
    double *a, *b, *c, *panel;
    double *vector, *image, *bound; /* of the check: r, B r, |B| |r|; all `order` long */
    double packed[PANEL_ROWS_MAX * TILE_COLUMNS];
};

struct multiply {
    struct application application;
    struct product product;
    uint64_t check_no;
};

/* -1 to 1, the same whichever rank has it. */
static double element(enum stream stream, uint64_t index)
{
    return (double)(application_noise(stream, index) >> 11) * 0x1p-52 - 1;
}

static double *doubles(size_t count)
{
    return memory_pages(count, sizeof(double));
}

static void product_new(struct product *product, struct application *application, MPI_Comm communicator, int64_t order,
                        int64_t panel_rows)
{
    product->application = application;
    product->communicator = communicator;
    MPI_Comm_rank(communicator, &product->rank);
    MPI_Comm_size(communicator, &product->size);
    size_t n = product->order = (size_t)order;
    product->first = application_first(n, product->rank, product->size);
    product->rows = application_first(n, product->rank + 1, product->size) - product->first;
    product->panel_rows = (size_t)panel_rows;
    product->a = doubles(product->rows * n);
    product->b = doubles(product->rows * n);
    product->c = doubles(product->rows * n);
    product->panel = doubles(product->panel_rows * n);
    product->vector = doubles(n);
    product->image = doubles(n);
    product->bound = doubles(n);
    for (size_t i = 0; i < product->rows * n; i++) {
        product->a[i] = element(STREAM_A, product->first * n + i);
        product->b[i] = element(STREAM_B, product->first * n + i);
        product->c[i] = NAN; /* touched now: no page fault is timed */
    }
}

static void product_free(struct product *product)
{
    free(product->a);
    free(product->b);
    free(product->c);
    free(product->panel);
    free(product->vector);
    free(product->image);
    free(product->bound);
}

/* Adds to a tile of C: `height` rows of A from `a`, times the packed columns. Rows below are computed twice instead. */
static void tile_add(const double *a, size_t order, size_t height, const double *restrict packed, size_t depth,
                     double *c, size_t width)
{
    const double *row[TILE_ROWS];
    double sum[TILE_ROWS][TILE_COLUMNS] = {{0}};
    for (size_t r = 0; r < TILE_ROWS; r++)
        row[r] = a + (r < height ? r : height - 1) * order;
    for (size_t k = 0; k < depth; k++)
        for (size_t r = 0; r < TILE_ROWS; r++)
            for (size_t j = 0; j < TILE_COLUMNS; j++)
                sum[r][j] += row[r][k] * packed[k * TILE_COLUMNS + j];
    for (size_t r = 0; r < height; r++)
        for (size_t j = 0; j < width; j++)
            c[r * order + j] += sum[r][j];
}

/* C += A[all my rows, first to first + depth - 1] * panel. Some columns of the panel at a time lie packed in the
 * first-level cache while all rows pass by. */
static void panel_add(struct product *product, size_t first, const double *panel, size_t depth)
{
    size_t n = product->order;
    for (size_t column = 0; column < n; column += TILE_COLUMNS) {
        size_t width = n - column < TILE_COLUMNS ? n - column : TILE_COLUMNS;
        for (size_t k = 0; k < depth; k++)
            for (size_t j = 0; j < TILE_COLUMNS; j++)
                product->packed[k * TILE_COLUMNS + j] = j < width ? panel[k * n + column + j] : 0;
        for (size_t i = 0; i < product->rows; i += TILE_ROWS) {
            size_t height = product->rows - i < TILE_ROWS ? product->rows - i : TILE_ROWS;
            tile_add(product->a + i * n + first, n, height, product->packed, depth, product->c + i * n + column, width);
        }
    }
}

static int multiply(void *state)
{
    struct product *product = state;
    size_t n = product->order;
    double own_bytes = (double)(product->rows * n * sizeof(double));
    product->application->given_bytes = product->size > 1 ? own_bytes : 0;
    product->application->left_bytes = product->size > product->application->on_node ? own_bytes : 0;
    memset(product->c, 0, product->rows * n * sizeof(double));
    for (int owner = 0; owner < product->size; owner++) {
        size_t end = application_first(n, owner + 1, product->size);
        for (size_t first = application_first(n, owner, product->size); first < end; first += product->panel_rows) {
            size_t depth = end - first < product->panel_rows ? end - first : product->panel_rows;
            double *panel = owner == product->rank ? product->b + (first - product->first) * n : product->panel;
            uint64_t since_ns = clock_now_ns();
            int rc = MPI_Bcast(panel, (int)(depth * n), MPI_DOUBLE, owner, product->communicator);
            application_called(product->application, since_ns);
            if (rc != MPI_SUCCESS)
                return rc;
            panel_add(product, first, panel, depth);
        }
    }
    return MPI_SUCCESS;
}

/* Every rank has all of `whole` afterwards, of which it made its own rows. */
static int share_rows(const struct product *product, double *whole)
{
    int rc = MPI_SUCCESS;
    for (int owner = 0; rc == MPI_SUCCESS && owner < product->size; owner++) {
        size_t first = application_first(product->order, owner, product->size);
        size_t end = application_first(product->order, owner + 1, product->size);
        rc = MPI_Bcast(whole + first, (int)(end - first), MPI_DOUBLE, owner, product->communicator);
    }
    return rc;
}

/* Freivalds' check with r of random signs and sizes from 1 to 2, so that errors do not cancel. With u = 2^-53 each sum
 * of n products is off by at most n u (and terms in u^2) of the sum of their magnitudes (Higham, Accuracy and Stability
 * of Numerical Algorithms, 2002, section 3.1). There are four on the way: C, C r, B r, A (B r). So rounding makes a
 * difference of at most 4 n u |A| |B| |r|; a fifth holds the terms in u^2 and the rounding of the bound itself. */
static bool product_check(struct run *run, struct product *product, uint64_t check_no)
{
    size_t n = product->order;
    double bound_ratio = 5 * (double)n * 0x1p-53;
    for (size_t j = 0; j < n; j++) {
        double noise = element(STREAM_VECTOR, check_no * n + j);
        product->vector[j] = noise < 0 ? noise - 1 : noise + 1;
    }
    for (size_t i = 0; i < product->rows; i++) {
        double image = 0, bound = 0;
        for (size_t j = 0; j < n; j++) {
            image += product->b[i * n + j] * product->vector[j];
            bound += fabs(product->b[i * n + j] * product->vector[j]);
        }
        product->image[product->first + i] = image;
        product->bound[product->first + i] = bound;
    }
    if (!mpi_run_check(run, share_rows(product, product->image), "check") ||
        !mpi_run_check(run, share_rows(product, product->bound), "check"))
        return false;
    for (size_t i = 0; i < product->rows; i++) {
        double wanted = 0, found = 0, bound = 0;
        for (size_t j = 0; j < n; j++) {
            wanted += product->a[i * n + j] * product->image[j];
            bound += fabs(product->a[i * n + j]) * product->bound[j];
            found += product->c[i * n + j] * product->vector[j];
        }
        if (!(fabs(wanted - found) <= bound_ratio * bound)) {
            run_invalid(run, "row %zu of the product at rank %d is off by %.3g; rounding explains %.3g",
                        product->first + i, product->rank, fabs(wanted - found), bound_ratio * bound);
            break;
        }
    }
    return true;
}

static bool multiply_open(struct run *run)
{
    struct multiply *state = run->state;
    const struct multiply_options *options = run->options;
    struct application *application = &state->application;
    struct ranks_asked asked = {options->node_count, options->ranks_per_node, options->rank_binding};
    if (!application_new(run, application, asked))
        return false;
    if (options->matrix_row_count < application->size)
        return fail(&run->failure, EXIT_USAGE, "matrix_row_count: found %lld: allowed with %d ranks: %d and more",
                    (long long)options->matrix_row_count, application->size, application->size);
    double share =
        (double)application->on_node / application->size + (options->alone && application->rank == 0 ? 1 : 0);
    double elements = (double)options->matrix_row_count * (double)options->matrix_row_count;
    if (!application_fits(run, "matrix_row_count", options->matrix_row_count, 3 * share * elements * sizeof(double)))
        return false;
    product_new(&state->product, application, application->communicator, options->matrix_row_count,
                options->panel_row_count);
    return true;
}

static void multiply_begin(struct run *run)
{
    application_begin(&((struct multiply *)run->state)->application);
}

static enum step multiply_step(struct run *run)
{
    struct multiply *state = run->state;
    struct product *product = &state->product;
    if (!application_operate(run, &state->application, multiply, product) ||
        !product_check(run, product, state->check_no++))
        return STEP_FAILED;
    return STEP_OPERATION;
}

static bool multiply_batch_end(struct run *run)
{
    return application_batch_end(run, &((struct multiply *)run->state)->application);
}

static void multiply_alone(struct run *run, struct multiply *state)
{
    const struct multiply_options *options = run->options;
    struct product *whole = NULL;
    if (state->application.rank == 0) {
        whole = memory_new(1, sizeof *whole);
        product_new(whole, &state->application, MPI_COMM_SELF, options->matrix_row_count, options->panel_row_count);
    }
    application_alone(&state->application, options->common.duration_s, multiply, whole);
    if (whole) {
        product_check(run, whole, state->check_no);
        product_free(whole);
        free(whole);
    }
}

/* Every rank is here: none came this far without all others. */
static void multiply_report(struct run *run)
{
    struct multiply *state = run->state;
    const struct multiply_options *options = run->options;
    struct multiply_metrics *metrics = run->metrics;
    double order = (double)options->matrix_row_count, flop = 2 * order * order * order;
    double moved_bytes = (state->application.size - 1) * order * order * sizeof(double);
    if (options->alone)
        multiply_alone(run, state);
    application_report(run, &state->application, moved_bytes, &metrics->operation, &metrics->application);
    if (state->application.rank != 0)
        return;
    metrics->rate_flops = flop / (metrics->operation.operation_p50_ns / NS_PER_S);
    metrics->alone_flops = flop / (metrics->application.alone_ns / NS_PER_S);
}

static void multiply_close(struct run *run)
{
    struct multiply *state = run->state;
    product_free(&state->product);
    application_free(&state->application);
}

const struct kernel kernel_mpi_matrix_multiply = {
    .name = "mpi_matrix_multiply",
    .summary =
        "product of two square matrices over all ranks, one or more per node: an application that needs the link",
    .method =
        "Each rank holds its rows of A, B and C, doubles from -1 to 1. Panel by panel, the owner of a panel of B "
        "gives it to all by MPI_Bcast, and each rank adds to its rows of C what the panel brings; one thread per rank, "
        "blocked for the caches, no library. All ranks leave a barrier that is not timed; one sample is the longest "
        "time of any rank. Calls of MPI within are timed at every rank. Every product is checked afterwards, not "
        "timed: A(Br) = Cr for a random vector r, within what rounding explains. Then rank 0 multiplies the same "
        "matrices alone. More rows make more computing per byte: small matrices show the link, large ones the CPUs.",
    .options = OPTION_TABLE_RELATED(option_rows, struct multiply_options, NULL, relations),
    .metrics = METRIC_TABLE(metric_rows, struct multiply_metrics),
    .state_bytes = sizeof(struct multiply),
    .round_trips = true,
    .many_ranks = true,
    .open = multiply_open,
    .begin = multiply_begin,
    .step = multiply_step,
    .batch_end = multiply_batch_end,
    .report = multiply_report,
    .close = multiply_close,
};
