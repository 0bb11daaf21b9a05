/* The state of one measurement at one end, and small things every kernel needs from it. */
#ifndef HPCQ_RUN_H
#define HPCQ_RUN_H

#include "base/clock.h"
#include "base/histogram.h"
#include "base/intervals.h"
#include "base/placed.h"
#include "base/series.h"
#include "capture/capture.h"
#include "describe/kernel.h"
#include "evidence/evidence.h"
#include "wire/address.h"
#include "wire/control.h"

#include <pthread.h>
#include <sys/resource.h>

/* Named JSON values in order: what was granted, and warnings (name and message). */
struct note {
    char *name, *value;
};
struct notes {
    struct note *list;
    size_t count;
};

struct samples {
    const char *path; /* NULL: none are kept */
    uint64_t *list;   /* ns */
    size_t count, capacity;
};

/* What is kept beside the result line; asked: by the peer, for its own files. */
struct keep {
    const char *evidence_path, *raw_folder;
    const char *capture_path; /* files of both ends: it, and .client.pcap or .server.pcap */
    bool evidence_asked, raw_asked;
    char *peer_full;
    struct notes peer_raw; /* path and text */
};

enum phase { PHASE_NONE, PHASE_WARMUP, PHASE_MEASURE };

struct run {
    const struct program *program;
    const struct kernel *kernel;
    const char *programs_path;       /* of the programs file; NULL: no foreign programs */
    const char *sizes_done;          /* of a sweep, A,B,...: an earlier start measured them; NULL: none */
    void *options, *metrics, *state; /* structs of the kernel */
    struct failure failure;
    bool is_server, is_active;
    bool both_send;   /* the passive end sends too */
    bool interrupted; /* client: by SIGINT, and what was measured is kept */
    bool invalid;
    char invalid_reason[256];

    struct control control;
    bool more_follow;         /* client: another measurement comes over the same control channel */
    const void *communicator; /* MPI: of the ranks (an MPI_Comm) */
    int server_rank;          /* MPI: the rank whose evidence is kept beside that of rank 0 */
    uint64_t deadline_ns;     /* of the whole run */
    double timeout_s;
    struct address local, peer;      /* of the control channel; the test channel uses the same hosts */
    struct port_range ports;         /* server: for the test socket */
    unsigned test_port, second_port; /* the second one only of foreign programs that need two */
    struct notes told,
        heard; /* of a kernel that tells: what its ends say to each other before the test channel is open */

    enum phase phase;
    uint64_t phase_start_ns, now_ns, phase_end_ns;
    uint64_t operation_count;        /* operations of this phase at this end */
    bool settling;                   /* MPI: this operation only brings the ranks into step, and is not measured */
    uint64_t call_count;             /* system calls on the test channel, this phase */
    uint64_t sent_count, sent_bytes; /* of an end that sends, this phase */
    uint64_t first_left_ns;          /* by this end's clock: the first of them had left by then; 0: not known */
    bool closing;                    /* active end: the time is over, what is under way is waited for */
    uint64_t under_way_count;        /* operations begun and not ended, where there may be many */
    bool stopped;                    /* this end sends no more */
    uint64_t sent_end_ns;            /* since then */
    bool peer_stopped;               /* the peer sends no more, and these are its figures */
    uint64_t peer_sent_count, peer_sent_bytes, peer_first_left_ns; /* by the peer's clock */
    struct rusage usage_start, usage_end;
    uint64_t usage_end_ns; /* passive: when the stop came; settling and draining are not measured */

    struct notes granted, warnings;
    struct notes outputs;   /* what foreign programs wrote, by end, as JSON */
    struct series series;   /* passive: what arrived, by time */
    uint64_t arrived_bytes; /* all of it */
    struct notes
        columns; /* by interval: what arrived and what its sender saw, as JSON lists; the client has both ends' */
    struct histogram *histogram;
    struct samples samples;
    struct intervals intervals;
    struct evidence *evidence;
    struct keep keep;
    struct capture *capture;  /* of this end; NULL: none */
    struct text peer_capture; /* client: the server's file */
    char *peer_evidence;      /* client: the server's, as JSON */
    struct notes others;      /* evidence of ranks after the first two, by rank, as JSON */
    bool evidence_complete;
    char started_utc[UTC_TEXT_BYTES];
    struct placed *buffers; /* what this end sends from and receives into */
    size_t buffer_count;
    void *cpus_before; /* a cpu_set_t: where this process might run before its options pinned it; NULL: they did not */
    int idle_descriptor; /* open as long as idle states are held; 0: none */
};

void run_begin(struct run *run, const struct program *program, const struct kernel *kernel, bool is_server);
void run_end(struct run *run);
const struct common_options *run_common(const struct run *run);
struct common_metrics *run_common_metrics(struct run *run);

/* Memory to send from or receive into, placed as the options say and kept until run_end(), or exit 4. run_noise() has
 * written it; run_buffer() has not: whoever writes a page first decides on its NUMA node. */
void *run_buffer(struct run *run, size_t bytes);
void *run_noise(struct run *run, size_t bytes);

bool run_sends(const struct run *run);    /* now */
bool run_receives(const struct run *run); /* from the peer that sends, not replies */

/* A state by name with its own deadline, never later than the run's. */
uint64_t run_state(struct run *run, const char *state, double limit_s);
double run_open_limit_s(const struct run *run); /* an end may have GiBs of memory to write and to register */
void run_invalid(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
void run_warn(struct run *run, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What the system granted this end; the name gets the end's prefix: send_buffer_bytes -> client_send_buffer_bytes. */
void run_grant_number(struct run *run, const char *name, double value);
void run_grant_boolean(struct run *run, const char *name, bool value);
void run_grant_text(struct run *run, const char *name, const char *value);
void notes_add(struct notes *notes, const char *name, const char *value);

/* To the CPU and the NUMA node that the options name for this end; and out of deep idle states, where they say so. */
bool run_pin(struct run *run);
/* The NUMA nodes that this system reports; 0: none. */
int run_numa_node_count(void);
/* As run_pin(), to the CPUs and memory of the NUMA node whose turn it is: ranks of a node take them one after another.
 */
bool run_pin_in_turn(struct run *run, int turn);
/* A thread beside the one that measures: where the process might run at first, but not on the CPU that it was pinned
 * to, if there is another. */
enum { RUN_CPUS_MAX = 1024 };
/* The CPUs for the threads of an end, the first one first: those that it may use, or those of its interface's NUMA
 * node; 0: the system does not say which that is. */
size_t run_cpus(const struct run *run, bool of_nic, int cpus[RUN_CPUS_MAX]);
/* Those of a list as 0-7,16, in its order; 0: it is none, or names one that the process may not use, or one twice. */
size_t run_cpus_listed(const struct run *run, const char *list, int cpus[RUN_CPUS_MAX]);
bool run_pin_thread(struct run *run, pthread_t thread, int cpu);
/* A thread beside the one that measures: where the process might run at first, but not on the CPU that it was pinned
 * to, if there is another. */
void run_beside(const struct run *run, pthread_t thread);
void run_round_trip(struct run *run, uint64_t elapsed_ns);         /* one sample: histogram and raw list */
void run_arrived(struct run *run, uint64_t when_ns, double bytes); /* passive: into the series */
void run_ramp(struct run *run);                                    /* a warning when the rate was still rising */
/* A list by interval for the result; of_return: of what the server sends, where both send. */
void run_column(struct run *run, bool of_return, const char *name, struct text *json);
bool run_samples_write(struct run *run);
/* Before the measurement: its time, and the "before" snapshot. */
void run_start(struct run *run);
/* After the measurement: the "after" snapshot, then the metrics of this end. */
void run_finish(struct run *run);

#endif
