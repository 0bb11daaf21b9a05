/* What a kernel is: two tables and a handful of functions. One kernel a file; the engine (phase.c, client.c, session.c)
 * does everything else.
 *
 *   server   listen -> [ready] -> open                                 close
 *   client                        open                                 close
 *                     of a kernel that tells: open -> [joined] at the client, then open at the server
 *   both                                 { begin  step step step ... } report
 *                                          once for the warm-up (if any), once for the measurement
 *
 * In each phase one end is active (it sends and decides when the phase is over), the other passive (it receives, or
 * answers, until the active end says on the control channel how much it sent). Where both send, the client is the
 * active end, and the server stops sending when the client does. */
#ifndef HPCQ_KERNEL_H
#define HPCQ_KERNEL_H

#include "base/placed.h"
#include "describe/metrics.h"
#include "describe/options.h"
#include "describe/relations.h"

struct run;

enum step {
    STEP_OPERATION, /* one operation was done */
    STEP_MOVED,     /* something was moved, and no operation ended with it */
    STEP_IDLE,      /* nothing arrived, or a signal came: look at the control channel */
    STEP_BUSY,      /* the same, amid an operation: the phase must not end here */
    STEP_DONE,      /* passive: everything the peer sent is here, or will not come; active: it has all that it wanted */
    STEP_FAILED     /* run->failure says why */
};

/* When a client's kernel is told of a measurement's course. */
enum moment {
    MOMENT_OPENED,  /* the test channel is open at both ends, and nothing was sent yet */
    MOMENT_STARTED, /* the measurement's clock runs */
    MOMENT_STOPPED, /* it has stopped: the sender sends no more */
    MOMENT_ENDED    /* all that was sent is here */
};

struct kernel {
    const char *name, *summary;
    const char *method;      /* what is timed, from which instant to which */
    const char *size_option; /* the option that size curves run over; NULL: none */
    struct option_table options;
    struct metric_table metrics;
    size_t state_bytes;
    bool internal;                             /* no kernel of its own: not described */
    bool round_trips;                          /* keeps a histogram of round trips */
    bool many_ranks;                           /* MPI: of all ranks of the job, not of two */
    bool (*server_sends)(const void *options); /* the server is the active end; NULL: never */
    bool (*both_send)(const void *options);    /* the passive end sends too, until the active one stops; NULL: never */
    bool is_foreign;                           /* runs the program of somebody else */
    bool tells;                                /* `ready` and `joined` carry what the ends say to each other */
    bool (*listen)(struct run *run);           /* server: make the test socket, set run->test_port */
    bool (*open)(struct run *run);             /* join the test channel, note what was granted */
    void (*begin)(struct run *run);            /* a phase starts: forget the one before */
    bool (*settle)(struct run *run);           /* active end: one exchange before the clock starts; NULL: none */
    void (*halt)(struct run *run);             /* this end sends no more, or the sender does; NULL: nothing to do */
    void (*end)(struct run *run);              /* the phase is over, before its counts are read; NULL: nothing to do */
    enum step (*step)(struct run *run);        /* one operation; sets run->now_ns */
    double (*arrived_bytes)(const struct run *run);      /* sender: what was acknowledged; NULL or NAN: not known */
    bool (*batch_end)(struct run *run);                  /* MPI: outside of what is timed, after each batch */
    bool (*moment)(struct run *run, enum moment moment); /* client; NULL: nothing to do */
    void (*report)(struct run *run);                     /* fill the metrics that this end knows */
    void (*close)(struct run *run);
};

/* Every option struct begins with this, every metric struct with the next. */
struct common_options {
    double duration_s, warmup_s;
    int64_t operation_count_max;
    int64_t client_cpu_index, server_cpu_index, client_numa_index, server_numa_index;
    int64_t idle;               /* idle_choices */
    int64_t series_interval_ms; /* 0: the kernel has no series */
    double width_max_ratio, width_level_ratio;
    double warmup_level_ratio;                        /* 0: the warm-up lasts warmup_s */
    int64_t sweep_to_bytes, sweep_perturbation_bytes; /* 0: no sweep over sizes */
    int64_t buffer_offset_bytes, buffer_pages;        /* page_choices */
    int64_t capture, capture_max_bytes;               /* capture_choices */
};

enum { IDLE_AS_IS, IDLE_HOLD };
extern const char *const idle_choices[];
extern const char *const capture_choices[];

/* What two captures of the test channel show (engine/capturing.h). */
struct capture_metrics {
    double capture_round_trip_min_ns, capture_round_trip_p50_ns, capture_round_trip_p99_ns, capture_syn_round_trip_ns;
    double capture_sent_count, capture_retransmit_count, capture_lost_in_host_count, capture_lost_on_path_count,
        capture_duplicate_count, capture_reordered_count;
    double capture_delay_change_p50_ns, capture_delay_change_p99_ns, capture_delay_change_max_ns;
    double capture_spacing_p50_ns, capture_arrival_spacing_p50_ns, capture_spacing_change_p50_ns,
        capture_spacing_change_p99_ns;
    double client_capture_packet_count, server_capture_packet_count, client_capture_dropped_count,
        server_capture_dropped_count, client_capture_cpu_ratio, server_capture_cpu_ratio;
};

struct common_metrics {
    double client_cpu_ratio, server_cpu_ratio;
    double client_node_cpu_ratio, server_node_cpu_ratio;
    double client_cpu_ns, server_cpu_ns, client_node_cpu_ns, server_node_cpu_ns;
    double throughput_width_ratio, round_trip_width_ratio;
    double client_cpu_per_byte_ns, server_cpu_per_byte_ns, client_node_cpu_per_byte_ns, server_node_cpu_per_byte_ns;
    double client_call_count, server_call_count;
    struct capture_metrics capture;
};

#define OPTION_COMMON(type, field, kind, standard, minimum, maximum, help)                                             \
    {#field, kind, offsetof(type, common.field), standard, minimum, maximum, NULL, help}

#define OPTION_ROWS_COMMON(type)                                                                                       \
    OPTION_COMMON(type, duration_s, OPTION_NUMBER, 2, 0.001, 604800, "length of the measurement"),                     \
        OPTION_COMMON(type, warmup_s, OPTION_NUMBER, 0.2, 0, 600, "length of the phase before it, not measured"),      \
        OPTION_COMMON(type, operation_count_max, OPTION_INTEGER, 0, 0, 1e12,                                           \
                      "end the measurement after this many operations; 0: by duration_s alone"),                       \
        OPTION_COMMON(type, client_cpu_index, OPTION_INTEGER, -1, -1, 8191, "pin the client to this CPU; -1: not"),    \
        OPTION_COMMON(type, server_cpu_index, OPTION_INTEGER, -1, -1, 8191, "pin the server to this CPU; -1: not"),    \
        OPTION_COMMON(type, client_numa_index, OPTION_INTEGER, -1, -1, 1023,                                           \
                      "CPUs and memory of the client are those of this NUMA node; -1: any"),                           \
        OPTION_COMMON(type, server_numa_index, OPTION_INTEGER, -1, -1, 1023,                                           \
                      "CPUs and memory of the server are those of this NUMA node; -1: any")

/* Of the kernels that have sockets. */
#define OPTION_ROW_IDLE(type)                                                                                          \
    {"idle",                                                                                                           \
     OPTION_CHOICE,                                                                                                    \
     offsetof(type, common.idle),                                                                                      \
     0,                                                                                                                \
     0,                                                                                                                \
     0,                                                                                                                \
     idle_choices,                                                                                                     \
     "hold: no CPU of either node goes into a deep idle state while this runs (/dev/cpu_dma_latency, root)"}

/* Of the kernels that send, receive or move memory. */
#define OPTION_ROW_PAGES(type)                                                                                         \
    {"buffer_pages",                                                                                                   \
     OPTION_CHOICE,                                                                                                    \
     offsetof(type, common.buffer_pages),                                                                              \
     0,                                                                                                                \
     0,                                                                                                                \
     0,                                                                                                                \
     page_choices,                                                                                                     \
     "pages of the buffers at both ends: as the system gives them, none larger than the base page, or huge ones "      \
     "where "                                                                                                          \
     "it has them"}
#define OPTION_ROWS_PLACE(type)                                                                                        \
    OPTION_COMMON(type, buffer_offset_bytes, OPTION_INTEGER, 0, 0, PLACED_PAGE_BYTES - 1,                              \
                  "what is sent from and received into begins so many bytes after the beginning of a page, at both "   \
                  "ends: 16 is how malloc() places it"),                                                               \
        OPTION_ROW_PAGES(type)

/* Of the kernels whose test channel is one port of the server. */
#define OPTION_ROWS_CAPTURE(type)                                                                                      \
    {"capture",                                                                                                        \
     OPTION_CHOICE,                                                                                                    \
     offsetof(type, common.capture),                                                                                   \
     0,                                                                                                                \
     0,                                                                                                                \
     0,                                                                                                                \
     capture_choices,                                                                                                  \
     "headers: both ends record the packets of this test with libpcap while it is measured (CAP_NET_RAW), and what "   \
     "both files show together is in the result"},                                                                     \
        OPTION_COMMON(type, capture_max_bytes, OPTION_INTEGER, 4194304, 4096, 16777216,                                \
                      "size of such a file, at each end: some 30,000 packets; then it is full")

/* Of the kernels that have a series. */
#define OPTION_ROWS_SERIES(type)                                                                                       \
    OPTION_COMMON(type, series_interval_ms, OPTION_INTEGER, 100, 1, 60000, "interval of the series"),                  \
        OPTION_COMMON(type, width_max_ratio, OPTION_NUMBER, 0, 0, 1,                                                   \
                      "end the measurement once the interval of its mean (of round trips: of the intervals' medians) " \
                      "is no wider than this share of it; 0: by duration_s alone, which stays the longest it takes"),  \
        OPTION_COMMON(type, width_level_ratio, OPTION_NUMBER, 0.95, 0.5, 0.9999,                                       \
                      "how sure that interval is to hold the mean"),                                                   \
        OPTION_COMMON(type, warmup_level_ratio, OPTION_NUMBER, 0, 0, 1,                                                \
                      "end the warm-up once its last three intervals brought on average as much as the three before, " \
                      "within this share; 0: by warmup_s alone, which stays the longest it takes")

/* Of the kernels whose sizes can be swept in one process (engine/sweep.h). */
#define OPTION_ROWS_SWEEP(type)                                                                                        \
    OPTION_COMMON(type, sweep_to_bytes, OPTION_INTEGER, 0, 0, 67108864,                                                \
                  "measure message_bytes, twice as much, and so on up to this, in one process; 0: one size"),          \
        OPTION_COMMON(type, sweep_perturbation_bytes, OPTION_INTEGER, 0, 0, 4096,                                      \
                      "of a sweep: each size also with so many bytes less and more")

#define METRIC_COMMON(type, field, better, help) {#field, better, offsetof(type, common.field), help}

#define METRIC_ROWS_COMMON(type)                                                                                       \
    METRIC_COMMON(type, client_cpu_ratio, BETTER_LOWER,                                                                \
                  "CPU time of the client's process over the measurement (1.0: one core)"),                            \
        METRIC_COMMON(type, server_cpu_ratio, BETTER_LOWER,                                                            \
                      "CPU time of the server's process over the measurement (1.0: one core)"),                        \
        METRIC_COMMON(type, client_node_cpu_ratio, BETTER_NONE,                                                        \
                      "busy share of all CPUs of the client's node between the snapshots, from /proc/stat ticks"),     \
        METRIC_COMMON(type, server_node_cpu_ratio, BETTER_NONE,                                                        \
                      "busy share of all CPUs of the server's node between the snapshots, from /proc/stat ticks"),     \
        METRIC_COMMON(type, client_cpu_ns, BETTER_NONE, "CPU time of the client's process over the measurement"),      \
        METRIC_COMMON(type, server_cpu_ns, BETTER_NONE, "CPU time of the server's process over the measurement"),      \
        METRIC_COMMON(type, client_node_cpu_ns, BETTER_NONE,                                                           \
                      "busy time of all CPUs of the client's node between the snapshots, whoever used them"),          \
        METRIC_COMMON(type, server_node_cpu_ns, BETTER_NONE,                                                           \
                      "busy time of all CPUs of the server's node between the snapshots, whoever used them")

/* Of the kernels that move bytes as fast as they can. */
#define METRIC_ROWS_PER_BYTE(type)                                                                                     \
    METRIC_COMMON(type, throughput_width_ratio, BETTER_LOWER,                                                          \
                  "width of the interval that holds the mean rate at width_level_ratio, over that mean; from the "     \
                  "series, with its correlation (from 10 intervals)"),                                                 \
        METRIC_COMMON(type, client_cpu_per_byte_ns, BETTER_LOWER, "client_cpu_ns per byte that it sent or received"),  \
        METRIC_COMMON(type, server_cpu_per_byte_ns, BETTER_LOWER, "server_cpu_ns per byte that it sent or received"),  \
        METRIC_COMMON(type, client_node_cpu_per_byte_ns, BETTER_NONE,                                                  \
                      "client_node_cpu_ns per byte: interrupts and softirqs too, and whatever else ran"),              \
        METRIC_COMMON(type, server_node_cpu_per_byte_ns, BETTER_NONE,                                                  \
                      "server_node_cpu_ns per byte: interrupts and softirqs too, and whatever else ran")

/* Of the ping-pongs. */
#define METRIC_ROW_WIDTH(type)                                                                                         \
    METRIC_COMMON(type, round_trip_width_ratio, BETTER_LOWER,                                                          \
                  "width of the interval that holds the mean of the intervals' medians at width_level_ratio, over "    \
                  "that mean (from 10 intervals)")

#define CAPTURE_METRIC(type, field, better, help) {#field, better, offsetof(type, common.capture.field), help}
#define METRIC_ROWS_CAPTURE(type)                                                                                      \
    CAPTURE_METRIC(type, capture_round_trip_min_ns, BETTER_LOWER, "with capture: the shortest of these (exact)"),      \
        CAPTURE_METRIC(                                                                                                \
            type, capture_round_trip_p50_ns, BETTER_LOWER,                                                             \
            "with capture: median time at the sender from a segment to the ACK that it brought (not of those "         \
            "sent twice); of udp_pingpong, from a request to its reply"),                                              \
        CAPTURE_METRIC(type, capture_round_trip_p99_ns, BETTER_LOWER, "99 of 100 took at most this (from 500)"),       \
        CAPTURE_METRIC(type, capture_syn_round_trip_ns, BETTER_LOWER,                                                  \
                       "at the client, from a connection's SYN to its answer; median over the flows"),                 \
        CAPTURE_METRIC(type, capture_sent_count, BETTER_NONE,                                                          \
                       "segments of the connection's MSS, or datagrams, that left the sender"),                        \
        CAPTURE_METRIC(type, capture_retransmit_count, BETTER_LOWER, "segments that the sender sent once more"),       \
        CAPTURE_METRIC(type, capture_lost_in_host_count, BETTER_LOWER,                                                 \
                       "of them, those whose first copy never left the sender: its own queue dropped it"),             \
        CAPTURE_METRIC(type, capture_lost_on_path_count, BETTER_LOWER,                                                 \
                       "segments or datagrams that left the sender and did not come to the receiver's interface"),     \
        CAPTURE_METRIC(type, capture_duplicate_count, BETTER_LOWER,                                                    \
                       "segments or datagrams that came to the receiver twice: it had not needed the second"),         \
        CAPTURE_METRIC(type, capture_reordered_count, BETTER_LOWER,                                                    \
                       "segments or datagrams that came after ones that were sent later, and were sent once"),         \
        CAPTURE_METRIC(type, capture_delay_change_p50_ns, BETTER_LOWER,                                                \
                       "median time from one interface to the other, above that of the fastest packet"),               \
        CAPTURE_METRIC(type, capture_delay_change_p99_ns, BETTER_LOWER, "99 of 100 were at most this (from 500)"),     \
        CAPTURE_METRIC(type, capture_delay_change_max_ns, BETTER_LOWER, "the most of them"),                           \
        CAPTURE_METRIC(type, capture_spacing_p50_ns, BETTER_NONE,                                                      \
                       "median time between packets that followed each other, at the sender's interface"),             \
        CAPTURE_METRIC(type, capture_arrival_spacing_p50_ns, BETTER_NONE, "the same at the receiver's"),               \
        CAPTURE_METRIC(type, capture_spacing_change_p50_ns, BETTER_LOWER,                                              \
                       "median of how much the two differ for the same two packets"),                                  \
        CAPTURE_METRIC(type, capture_spacing_change_p99_ns, BETTER_LOWER, "99 of 100 differ by at most this"),         \
        CAPTURE_METRIC(type, client_capture_packet_count, BETTER_NONE, "packets in the client's file"),                \
        CAPTURE_METRIC(type, server_capture_packet_count, BETTER_NONE, "packets in the server's file"),                \
        CAPTURE_METRIC(type, client_capture_dropped_count, BETTER_LOWER,                                               \
                       "packets that the client's capture had no room for in time"),                                   \
        CAPTURE_METRIC(type, server_capture_dropped_count, BETTER_LOWER, "the same at the server"),                    \
        CAPTURE_METRIC(type, client_capture_cpu_ratio, BETTER_LOWER,                                                   \
                       "CPU time of the client's capture over the measurement (in client_cpu_ratio too)"),             \
        CAPTURE_METRIC(type, server_capture_cpu_ratio, BETTER_LOWER, "the same at the server")

/* Of the kernels that count their calls (run->call_count). */
#define METRIC_ROWS_CALLS(type)                                                                                        \
    METRIC_COMMON(type, client_call_count, BETTER_NONE,                                                                \
                  "system calls on the test channel at the client: to send, to receive, to wait"),                     \
        METRIC_COMMON(type, server_call_count, BETTER_NONE,                                                            \
                      "system calls on the test channel at the server: to send, to receive, to wait")

#define ROW_COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))
#define OPTION_TABLE(rows, type) {rows, ROW_COUNT(rows), sizeof(type), NULL, NULL, 0}
#define OPTION_TABLE_WITH(rows, type, defaults) {rows, ROW_COUNT(rows), sizeof(type), defaults, NULL, 0}
#define OPTION_TABLE_RELATED(rows, type, defaults, relations)                                                          \
    {rows, ROW_COUNT(rows), sizeof(type), defaults, relations, ROW_COUNT(relations)}
#define METRIC_TABLE(rows, type) {rows, ROW_COUNT(rows), sizeof(type)}

extern const struct kernel kernel_tcp_stream;
extern const struct kernel kernel_tcp_pingpong;
extern const struct kernel kernel_udp_stream;
extern const struct kernel kernel_udp_pingpong;
extern const struct kernel kernel_tcp_connect;
extern const struct kernel kernel_udp_oneway;
extern const struct kernel kernel_udp_dispersion;
extern const struct kernel kernel_udp_rate_search;
extern const struct kernel kernel_path_probe;
extern const struct kernel kernel_memory_copy;
extern const struct kernel kernel_mpi_pingpong;
extern const struct kernel kernel_mpi_pingping;
extern const struct kernel kernel_mpi_stream;
extern const struct kernel kernel_mpi_collective;
extern const struct kernel kernel_mpi_one_sided;
extern const struct kernel kernel_mpi_matrix_multiply;
extern const struct kernel kernel_mpi_sort;
extern const struct kernel kernel_fabric_pingpong;
extern const struct kernel kernel_fabric_stream;
extern const struct kernel kernel_fabric_write;
extern const struct kernel kernel_fabric_read;
extern const struct kernel kernel_fabric_atomic;
extern const struct kernel kernel_program; /* somebody else's program */

#endif
