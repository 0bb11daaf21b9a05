PRAGMA application_id = 1752195953;
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE acceptance ( -- ledger: every verdict that an acceptance gave of a node
    acceptance_id INTEGER PRIMARY KEY, -- key
    node_id INTEGER NOT NULL REFERENCES node, -- which node
    node_boot_id INTEGER REFERENCES node_boot, -- the boot that was judged; NULL: nothing was measured
    run_id INTEGER REFERENCES run, -- the run that it rests on; NULL: there was none
    baseline_id INTEGER REFERENCES baseline, -- what it was held against; NULL: no named baseline
    verdict TEXT NOT NULL CHECK (verdict IN ('pass', 'degraded', 'failed', 'inconclusive', 'not_covered')), -- in a word
    reason TEXT NOT NULL CHECK (typeof(reason) = 'text'), -- in words
    decided_utc TEXT NOT NULL CHECK (decided_utc GLOB '????-??-??T??:??:??*Z'), -- when, UTC
    UNIQUE (node_id, decided_utc)
);
INSERT INTO "acceptance" VALUES(1,1,1,1,1,'pass','as expected with n2','2026-11-21T23:25:49.504909Z');
INSERT INTO "acceptance" VALUES(2,2,2,1,1,'failed','slow with n1','2026-11-21T23:25:49.504974Z');
INSERT INTO "acceptance" VALUES(3,4,NULL,1,1,'not_covered','drained','2026-11-21T23:25:49.504989Z');
CREATE TABLE attempt ( -- one submission of a job; never overwritten by the next
    attempt_id INTEGER PRIMARY KEY, -- key
    job_id INTEGER NOT NULL REFERENCES job, -- whose
    attempt_no INTEGER NOT NULL CHECK (typeof(attempt_no) = 'integer'), -- from 1
    tag TEXT NOT NULL UNIQUE CHECK (typeof(tag) = 'text'), -- ours; the job's name in the scheduler
    native_id TEXT CHECK (typeof(native_id) IN ('text', 'null')), -- the scheduler's; NULL: never accepted
    state TEXT CHECK (typeof(state) IN ('text', 'null')), -- last state seen while it lived
    outcome TEXT CHECK (outcome IS NULL OR outcome IN ('completed', 'failed', 'cancelled', 'timed_out', 'node_failed',
        'preempted', 'boot_failed', 'out_of_memory', 'deadline', 'revoked', 'refused', 'withdrawn', 'lost')), -- NULL: lives
    reason TEXT CHECK (typeof(reason) IN ('text', 'null')), -- in words, from scheduler, script or driver
    nodes TEXT NOT NULL CHECK (typeof(nodes) = 'text'), -- nodes as last reported, blank between
    exit_code INTEGER CHECK (typeof(exit_code) IN ('integer', 'null')), -- of the script; NULL: not known
    committed_utc TEXT NOT NULL CHECK (committed_utc GLOB '????-??-??T??:??:??*Z'), -- journal entry before submitting, UTC
    submitted_utc TEXT CHECK (submitted_utc IS NULL OR submitted_utc GLOB '????-??-??T??:??:??*Z'), -- accepted, UTC
    started_utc TEXT CHECK (started_utc IS NULL OR started_utc GLOB '????-??-??T??:??:??*Z'), -- script began, UTC
    ended_utc TEXT CHECK (ended_utc IS NULL OR ended_utc GLOB '????-??-??T??:??:??*Z'), -- script or scheduler, UTC
    UNIQUE (job_id, attempt_no)
);
INSERT INTO "attempt" VALUES(1,1,1,'hpcq-nightly-20261121T020000Z-00ff-alpha-j00001-1','101',NULL,'completed',NULL,'n1 n2',0,'2026-11-21T23:25:49.466331Z','2026-11-21T23:25:49.466344Z','2026-11-21T02:00:02.000000Z','2026-11-21T02:00:11.000000Z');
INSERT INTO "attempt" VALUES(2,2,1,'hpcq-nightly-20261121T020000Z-00ff-alpha-j00002-1','102',NULL,'completed',NULL,'n2 n1',0,'2026-11-21T23:25:49.471998Z','2026-11-21T23:25:49.472011Z','2026-11-21T02:00:04.000000Z','2026-11-21T02:00:13.000000Z');
CREATE TABLE baseline ( -- what counted as good, by name; setting a name again adds a row, and the latest holds
    baseline_id INTEGER PRIMARY KEY, -- key
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- as people call it
    set_utc TEXT NOT NULL CHECK (set_utc GLOB '????-??-??T??:??:??*Z'), -- when it was set, UTC
    who TEXT NOT NULL CHECK (typeof(who) = 'text'), -- who set it
    why TEXT NOT NULL CHECK (typeof(why) = 'text'), -- and why
    UNIQUE (name, set_utc)
);
INSERT INTO "baseline" VALUES(1,'good','2026-11-21T02:10:00Z','me','first light');
CREATE TABLE baseline_run ( -- the runs that make a baseline
    baseline_id INTEGER NOT NULL REFERENCES baseline, -- which baseline
    run_id INTEGER NOT NULL REFERENCES run, -- one of its runs
    PRIMARY KEY (baseline_id, run_id)
) WITHOUT ROWID;
CREATE TABLE build ( -- a program as it was built on a cluster
    build_id INTEGER PRIMARY KEY, -- key
    cluster_id INTEGER NOT NULL REFERENCES cluster, -- where
    sha256 BLOB NOT NULL CHECK (typeof(sha256) = 'blob'), -- of the build's record, its date left out
    toolchain TEXT NOT NULL CHECK (typeof(toolchain) = 'text'), -- its name in the cluster's file
    program TEXT NOT NULL CHECK (typeof(program) = 'text'), -- hpcq-net, hpcq-mpi
    version TEXT NOT NULL CHECK (typeof(version) = 'text'), -- of the program; empty: not recorded
    source_build_id TEXT NOT NULL CHECK (typeof(source_build_id) = 'text'), -- of its sources, as the program prints it
    compiler TEXT NOT NULL CHECK (typeof(compiler) = 'text'), -- compiler with its version; empty: not recorded
    flags TEXT NOT NULL CHECK (typeof(flags) = 'text'), -- flags of the compiler
    mpi TEXT NOT NULL CHECK (typeof(mpi) = 'text'), -- MPI library with its version; empty: none
    modules TEXT NOT NULL CHECK (typeof(modules) = 'text'), -- environment modules, blank between
    binary_sha256 TEXT NOT NULL CHECK (typeof(binary_sha256) = 'text'), -- of the binary, hex; empty: not recorded
    built_utc TEXT CHECK (built_utc IS NULL OR built_utc GLOB '????-??-??T??:??:??*Z'), -- when, UTC
    UNIQUE (cluster_id, sha256)
);
INSERT INTO "build" VALUES(1,1,X'637669D6E7303EC8957FF1A4AC06840CFB252DACF5948CA0E4B4E85E59D1635A','default','hpcq-net','0.1.0','net-1111','cc (Debian 12.2.0-14) 12.2.0','-O2 -std=c11','','gcc/12 openmpi/4.1','0000000000000000000000000000000000000000000000000000000000000001','2026-11-21T01:59:30.000000Z');
INSERT INTO "build" VALUES(2,1,X'C320F93289FF2C19C76AED5DBD3A642C8693C819B59052CE9B00D3648011829A','default','hpcq-mpi','0.1.0','mpi-2222','cc (Debian 12.2.0-14) 12.2.0','-O2 -std=c11','mpicc: Open MPI 4.1.4 (Language: C)','gcc/12 openmpi/4.1','0000000000000000000000000000000000000000000000000000000000000002','2026-11-21T01:59:30.000000Z');
CREATE TABLE campaign ( -- campaigns by name; what each run's file said is run.document_id
    campaign_id INTEGER PRIMARY KEY, -- key
    name TEXT NOT NULL UNIQUE CHECK (typeof(name) = 'text') -- as in the campaign's file
);
INSERT INTO "campaign" VALUES(1,'nightly');
CREATE TABLE change ( -- a series left its level: what `hpcq regressions --record` or an acceptance found
    change_id INTEGER PRIMARY KEY, -- key
    series_id INTEGER NOT NULL REFERENCES series, -- which series
    metric_name_id INTEGER NOT NULL REFERENCES metric_name, -- which metric
    method TEXT NOT NULL CHECK (method IN ('search', 'boundary')), -- boundary: before against after a given moment
    direction TEXT NOT NULL CHECK (direction IN ('worse', 'better', 'changed')), -- changed: the metric has no better
    at_utc TEXT NOT NULL CHECK (at_utc GLOB '????-??-??T??:??:??*Z'), -- start of the first point of the new level, UTC
    before REAL NOT NULL CHECK (typeof(before) = 'real'), -- median before, in metric_name.unit
    after REAL NOT NULL CHECK (typeof(after) = 'real'), -- median after, in metric_name.unit
    ratio REAL CHECK (typeof(ratio) IN ('real', 'null')), -- after / before; NULL: a median is not above zero
    low REAL CHECK (typeof(low) IN ('real', 'null')), -- lower end of its 95 % interval
    high REAL CHECK (typeof(high) IN ('real', 'null')), -- upper end of its 95 % interval
    before_count INTEGER NOT NULL CHECK (typeof(before_count) = 'integer'), -- points before
    after_count INTEGER NOT NULL CHECK (typeof(after_count) = 'integer'), -- points after
    own_build INTEGER NOT NULL CHECK (own_build IN (0, 1)), -- 1: hpcq's own program changed with it, so not the machine's
    cause TEXT NOT NULL CHECK (typeof(cause) = 'text'), -- what differs most between the sides, in words; empty: nothing seen
    found_utc TEXT NOT NULL CHECK (found_utc GLOB '????-??-??T??:??:??*Z'), -- when it was first found, UTC
    UNIQUE (series_id, metric_name_id, method, at_utc)
);
CREATE TABLE change_state ( -- what people decided about a change; the highest state_no holds
    change_id INTEGER NOT NULL REFERENCES change, -- which change
    state_no INTEGER NOT NULL CHECK (typeof(state_no) = 'integer'), -- from 1
    state TEXT NOT NULL CHECK (state IN ('open', 'acknowledged', 'expected', 'fixed', 'false')), -- false: there was no change
    set_utc TEXT NOT NULL CHECK (set_utc GLOB '????-??-??T??:??:??*Z'), -- when, UTC
    who TEXT NOT NULL CHECK (typeof(who) = 'text'), -- who decided
    why TEXT NOT NULL CHECK (typeof(why) = 'text'), -- and why
    PRIMARY KEY (change_id, state_no)
) WITHOUT ROWID;
CREATE TABLE cluster ( -- a cluster, by the name of its file
    cluster_id INTEGER PRIMARY KEY, -- key
    name TEXT NOT NULL UNIQUE CHECK (typeof(name) = 'text') -- as in clusters/<name>.yaml
);
INSERT INTO "cluster" VALUES(1,'alpha');
CREATE TABLE counter ( -- names of counters and gauges
    counter_id INTEGER PRIMARY KEY, -- key
    name TEXT NOT NULL UNIQUE CHECK (typeof(name) = 'text'), -- <source>.<item>.<name>: net_dev.eth0.rx_bytes
    source TEXT NOT NULL CHECK (typeof(source) = 'text'), -- its first word: net_dev, snmp, softnet, ...
    kind TEXT NOT NULL CHECK (kind IN ('counter', 'gauge')), -- counted (evidence) or read (gauge)
    unit TEXT NOT NULL REFERENCES unit (name) -- from the name's suffix
);
INSERT INTO "counter" VALUES(1,'net_dev.eth0.rx_bytes','net_dev','counter','bytes');
INSERT INTO "counter" VALUES(2,'net_dev.eth0.tx_bytes','net_dev','counter','bytes');
INSERT INTO "counter" VALUES(3,'stat.cpu.user_ticks','stat','counter','number');
INSERT INTO "counter" VALUES(4,'softirqs.cpu0.NET_RX','softirqs','counter','number');
INSERT INTO "counter" VALUES(5,'netstat.TcpExt.Counter0','netstat','counter','number');
INSERT INTO "counter" VALUES(6,'netstat.TcpExt.Counter1','netstat','counter','number');
INSERT INTO "counter" VALUES(7,'netstat.TcpExt.Counter2','netstat','counter','number');
INSERT INTO "counter" VALUES(8,'netstat.TcpExt.Counter3','netstat','counter','number');
INSERT INTO "counter" VALUES(9,'netstat.TcpExt.Counter4','netstat','counter','number');
INSERT INTO "counter" VALUES(10,'netstat.TcpExt.Counter5','netstat','counter','number');
INSERT INTO "counter" VALUES(11,'netstat.TcpExt.Counter6','netstat','counter','number');
INSERT INTO "counter" VALUES(12,'netstat.TcpExt.Counter7','netstat','counter','number');
INSERT INTO "counter" VALUES(13,'netstat.TcpExt.Counter8','netstat','counter','number');
INSERT INTO "counter" VALUES(14,'netstat.TcpExt.Counter9','netstat','counter','number');
INSERT INTO "counter" VALUES(15,'netstat.TcpExt.Counter10','netstat','counter','number');
INSERT INTO "counter" VALUES(16,'netstat.TcpExt.Counter11','netstat','counter','number');
INSERT INTO "counter" VALUES(17,'meminfo.memory.MemFree_bytes','meminfo','gauge','bytes');
INSERT INTO "counter" VALUES(18,'loadavg.all.one','loadavg','gauge','number');
CREATE TABLE document ( -- files that people wrote, verbatim, stored once
    document_id INTEGER PRIMARY KEY, -- key
    sha256 BLOB NOT NULL UNIQUE CHECK (typeof(sha256) = 'blob'), -- of text
    text TEXT NOT NULL CHECK (typeof(text) = 'text') -- YAML
);
INSERT INTO "document" VALUES(1,X'8227631328CFD7CA82F7BD0F0BB47C9960899D0BC27AC90DFB7EFF965F24E672','name: nightly
');
INSERT INTO "document" VALUES(2,X'6ABDBED2F7CDFD50680985AD82724E8F8842CE0D1795E73C0F376E62D9244A28','name: alpha
scheduler: slurm
');
CREATE TABLE endpoint ( -- a node's end of a test: which interface with which address
    endpoint_id INTEGER PRIMARY KEY, -- key
    node_id INTEGER NOT NULL REFERENCES node, -- the node that was planned
    host_name TEXT NOT NULL CHECK (typeof(host_name) = 'text'), -- what the machine called itself
    interface TEXT NOT NULL CHECK (typeof(interface) = 'text'), -- interface under test; empty: not reported
    address TEXT NOT NULL CHECK (typeof(address) = 'text'), -- address under test; empty: not reported
    UNIQUE (node_id, host_name, interface, address)
);
INSERT INTO "endpoint" VALUES(1,1,'n1','eth0','10.0.0.1');
INSERT INTO "endpoint" VALUES(2,2,'n2','eth0','10.0.0.2');
INSERT INTO "endpoint" VALUES(3,2,'n2','eth0','10.0.0.1');
INSERT INTO "endpoint" VALUES(4,1,'n1','eth0','10.0.0.2');
CREATE TABLE event ( -- what happened to machines, and what people remarked; nothing here is ever deleted
    event_id INTEGER PRIMARY KEY, -- key
    kind TEXT NOT NULL CHECK (kind IN ('maintenance', 'reboot', 'drain', 'resume', 'change', 'note')), -- what it is
    started_utc TEXT NOT NULL CHECK (started_utc GLOB '????-??-??T??:??:??*Z'), -- when it happened or began, UTC
    ended_utc TEXT CHECK (ended_utc IS NULL OR ended_utc GLOB '????-??-??T??:??:??*Z'), -- end, UTC; NULL: a moment, or open
    cluster_id INTEGER REFERENCES cluster, -- of a whole cluster, or the cluster of the node; NULL: of neither
    node_id INTEGER REFERENCES node, -- of a node; NULL: of no single one
    run_id INTEGER REFERENCES run, -- a remark on a run
    series_id INTEGER REFERENCES series, -- a remark on a series
    result_id INTEGER REFERENCES result, -- a remark on a result
    note TEXT NOT NULL CHECK (typeof(note) = 'text'), -- in words
    who TEXT NOT NULL CHECK (typeof(who) = 'text'), -- who said so; a scheduler is slurm:<cluster>
    recorded_utc TEXT NOT NULL CHECK (recorded_utc GLOB '????-??-??T??:??:??*Z') -- when it was written down, UTC
);
INSERT INTO "event" VALUES(1,'maintenance','2026-11-21T02:20:00Z',NULL,1,2,NULL,NULL,NULL,'swap','scheduler:alpha','2026-11-21T23:25:49.504563Z');
INSERT INTO "event" VALUES(2,'drain','2026-11-21T23:25:49.504723Z',NULL,1,4,NULL,NULL,NULL,'seen drained','scheduler:alpha','2026-11-21T23:25:49.504741Z');
CREATE TABLE evidence ( -- how far each counter moved during a measurement; zero is left out
    result_id INTEGER NOT NULL REFERENCES result, -- of which result
    end_index INTEGER NOT NULL CHECK (end_index IN (0, 1)), -- 0: client or MPI rank 0; 1: server or MPI rank 1
    counter_id INTEGER NOT NULL REFERENCES counter, -- which counter
    delta INTEGER NOT NULL CHECK (typeof(delta) = 'integer'), -- after minus before, in counter.unit
    PRIMARY KEY (result_id, end_index, counter_id)
) WITHOUT ROWID;
INSERT INTO "evidence" VALUES(1,0,1,25000001);
INSERT INTO "evidence" VALUES(1,0,2,400000);
INSERT INTO "evidence" VALUES(1,0,3,40);
INSERT INTO "evidence" VALUES(1,0,4,1800);
INSERT INTO "evidence" VALUES(1,0,5,396);
INSERT INTO "evidence" VALUES(1,0,6,594);
INSERT INTO "evidence" VALUES(1,0,7,4390);
INSERT INTO "evidence" VALUES(1,0,8,772);
INSERT INTO "evidence" VALUES(1,0,9,2996);
INSERT INTO "evidence" VALUES(1,0,10,4775);
INSERT INTO "evidence" VALUES(1,0,11,476);
INSERT INTO "evidence" VALUES(1,0,12,4157);
INSERT INTO "evidence" VALUES(1,0,13,1759);
INSERT INTO "evidence" VALUES(1,0,14,308);
INSERT INTO "evidence" VALUES(1,0,15,705);
INSERT INTO "evidence" VALUES(1,0,16,3553);
INSERT INTO "evidence" VALUES(1,1,1,25000002);
INSERT INTO "evidence" VALUES(1,1,2,400000);
INSERT INTO "evidence" VALUES(1,1,3,40);
INSERT INTO "evidence" VALUES(1,1,4,1800);
INSERT INTO "evidence" VALUES(1,1,5,3426);
INSERT INTO "evidence" VALUES(1,1,6,573);
INSERT INTO "evidence" VALUES(1,1,7,1972);
INSERT INTO "evidence" VALUES(1,1,8,744);
INSERT INTO "evidence" VALUES(1,1,9,4515);
INSERT INTO "evidence" VALUES(1,1,10,3478);
INSERT INTO "evidence" VALUES(1,1,11,485);
INSERT INTO "evidence" VALUES(1,1,12,4633);
INSERT INTO "evidence" VALUES(1,1,13,1015);
INSERT INTO "evidence" VALUES(1,1,14,1829);
INSERT INTO "evidence" VALUES(1,1,15,4776);
INSERT INTO "evidence" VALUES(1,1,16,507);
INSERT INTO "evidence" VALUES(2,0,1,25000001);
INSERT INTO "evidence" VALUES(2,0,2,400000);
INSERT INTO "evidence" VALUES(2,0,3,40);
INSERT INTO "evidence" VALUES(2,0,4,1800);
INSERT INTO "evidence" VALUES(2,0,5,4728);
INSERT INTO "evidence" VALUES(2,0,6,4797);
INSERT INTO "evidence" VALUES(2,0,7,3250);
INSERT INTO "evidence" VALUES(2,0,8,407);
INSERT INTO "evidence" VALUES(2,0,9,1812);
INSERT INTO "evidence" VALUES(2,0,10,382);
INSERT INTO "evidence" VALUES(2,0,11,4561);
INSERT INTO "evidence" VALUES(2,0,12,1091);
INSERT INTO "evidence" VALUES(2,0,13,2373);
INSERT INTO "evidence" VALUES(2,0,14,3434);
INSERT INTO "evidence" VALUES(2,0,15,1182);
INSERT INTO "evidence" VALUES(2,0,16,4430);
INSERT INTO "evidence" VALUES(2,1,1,25000002);
INSERT INTO "evidence" VALUES(2,1,2,400000);
INSERT INTO "evidence" VALUES(2,1,3,40);
INSERT INTO "evidence" VALUES(2,1,4,1800);
INSERT INTO "evidence" VALUES(2,1,5,965);
INSERT INTO "evidence" VALUES(2,1,6,4677);
INSERT INTO "evidence" VALUES(2,1,7,2528);
INSERT INTO "evidence" VALUES(2,1,8,4590);
INSERT INTO "evidence" VALUES(2,1,9,1481);
INSERT INTO "evidence" VALUES(2,1,10,845);
INSERT INTO "evidence" VALUES(2,1,11,4765);
INSERT INTO "evidence" VALUES(2,1,12,4680);
INSERT INTO "evidence" VALUES(2,1,13,1540);
INSERT INTO "evidence" VALUES(2,1,14,3051);
INSERT INTO "evidence" VALUES(2,1,15,799);
INSERT INTO "evidence" VALUES(2,1,16,4488);
INSERT INTO "evidence" VALUES(3,0,1,25000001);
INSERT INTO "evidence" VALUES(3,0,2,400000);
INSERT INTO "evidence" VALUES(3,0,3,40);
INSERT INTO "evidence" VALUES(3,0,4,1800);
INSERT INTO "evidence" VALUES(3,0,5,1688);
INSERT INTO "evidence" VALUES(3,0,6,4067);
INSERT INTO "evidence" VALUES(3,0,7,4356);
INSERT INTO "evidence" VALUES(3,0,8,3503);
INSERT INTO "evidence" VALUES(3,0,9,2574);
INSERT INTO "evidence" VALUES(3,0,10,3815);
INSERT INTO "evidence" VALUES(3,0,11,4797);
INSERT INTO "evidence" VALUES(3,0,12,3713);
INSERT INTO "evidence" VALUES(3,0,13,2963);
INSERT INTO "evidence" VALUES(3,0,14,2456);
INSERT INTO "evidence" VALUES(3,0,15,2036);
INSERT INTO "evidence" VALUES(3,0,16,1473);
INSERT INTO "evidence" VALUES(3,1,1,25000002);
INSERT INTO "evidence" VALUES(3,1,2,400000);
INSERT INTO "evidence" VALUES(3,1,3,40);
INSERT INTO "evidence" VALUES(3,1,4,1800);
INSERT INTO "evidence" VALUES(3,1,5,2000);
INSERT INTO "evidence" VALUES(3,1,6,671);
INSERT INTO "evidence" VALUES(3,1,7,4706);
INSERT INTO "evidence" VALUES(3,1,8,2460);
INSERT INTO "evidence" VALUES(3,1,9,4303);
INSERT INTO "evidence" VALUES(3,1,10,4056);
INSERT INTO "evidence" VALUES(3,1,11,2814);
INSERT INTO "evidence" VALUES(3,1,12,3677);
INSERT INTO "evidence" VALUES(3,1,13,2359);
INSERT INTO "evidence" VALUES(3,1,14,4989);
INSERT INTO "evidence" VALUES(3,1,15,600);
INSERT INTO "evidence" VALUES(3,1,16,968);
INSERT INTO "evidence" VALUES(4,0,1,25000001);
INSERT INTO "evidence" VALUES(4,0,2,400000);
INSERT INTO "evidence" VALUES(4,0,3,40);
INSERT INTO "evidence" VALUES(4,0,4,1800);
INSERT INTO "evidence" VALUES(4,0,5,4194);
INSERT INTO "evidence" VALUES(4,0,6,3426);
INSERT INTO "evidence" VALUES(4,0,7,1352);
INSERT INTO "evidence" VALUES(4,0,8,2803);
INSERT INTO "evidence" VALUES(4,0,9,1246);
INSERT INTO "evidence" VALUES(4,0,10,4006);
INSERT INTO "evidence" VALUES(4,0,11,3455);
INSERT INTO "evidence" VALUES(4,0,12,322);
INSERT INTO "evidence" VALUES(4,0,13,636);
INSERT INTO "evidence" VALUES(4,0,14,4572);
INSERT INTO "evidence" VALUES(4,0,15,4695);
INSERT INTO "evidence" VALUES(4,0,16,2571);
INSERT INTO "evidence" VALUES(4,1,1,25000002);
INSERT INTO "evidence" VALUES(4,1,2,400000);
INSERT INTO "evidence" VALUES(4,1,3,40);
INSERT INTO "evidence" VALUES(4,1,4,1800);
INSERT INTO "evidence" VALUES(4,1,5,2787);
INSERT INTO "evidence" VALUES(4,1,6,2869);
INSERT INTO "evidence" VALUES(4,1,7,4870);
INSERT INTO "evidence" VALUES(4,1,8,4069);
INSERT INTO "evidence" VALUES(4,1,9,4751);
INSERT INTO "evidence" VALUES(4,1,10,3738);
INSERT INTO "evidence" VALUES(4,1,11,564);
INSERT INTO "evidence" VALUES(4,1,12,767);
INSERT INTO "evidence" VALUES(4,1,13,2212);
INSERT INTO "evidence" VALUES(4,1,14,3884);
INSERT INTO "evidence" VALUES(4,1,15,533);
INSERT INTO "evidence" VALUES(4,1,16,498);
CREATE TABLE evidence_end ( -- both ends' own account of a measurement
    result_id INTEGER NOT NULL REFERENCES result, -- of which result
    end_index INTEGER NOT NULL CHECK (end_index IN (0, 1)), -- 0: client or MPI rank 0; 1: server or MPI rank 1
    endpoint_id INTEGER NOT NULL REFERENCES endpoint, -- interface and address
    node_boot_id INTEGER REFERENCES node_boot, -- boot of the node; NULL: not reported
    pid INTEGER CHECK (typeof(pid) IN ('integer', 'null')), -- of the kernel program
    cpu_index INTEGER CHECK (typeof(cpu_index) IN ('integer', 'null')), -- CPU it ran on, from 0
    before_utc TEXT CHECK (typeof(before_utc) IN ('text', 'null')), -- first snapshot, UTC by the node's own clock
    after_utc TEXT CHECK (typeof(after_utc) IN ('text', 'null')), -- second snapshot, UTC by the node's own clock
    interval_ns INTEGER CHECK (typeof(interval_ns) IN ('integer', 'null')), -- between them by the monotonic clock, ns
    before_cost_ns INTEGER CHECK (typeof(before_cost_ns) IN ('integer', 'null')), -- what the first snapshot took, ns
    after_cost_ns INTEGER CHECK (typeof(after_cost_ns) IN ('integer', 'null')), -- what the second snapshot took, ns
    unavailable_set_id INTEGER REFERENCES unavailable_set, -- sources that could not be read; NULL: none missing
    PRIMARY KEY (result_id, end_index)
) WITHOUT ROWID;
INSERT INTO "evidence_end" VALUES(1,0,1,1,4001,0,'2026-11-21T02:00:00.000000Z','2026-11-21T02:00:01.000000Z',1000100000,400000,410000,1);
INSERT INTO "evidence_end" VALUES(1,1,2,2,4002,0,'2026-11-21T02:00:00.000000Z','2026-11-21T02:00:01.000000Z',1000100000,400000,410000,1);
INSERT INTO "evidence_end" VALUES(2,0,1,1,4001,0,'2026-11-21T02:00:01.000000Z','2026-11-21T02:00:02.000000Z',1000100000,400000,410000,1);
INSERT INTO "evidence_end" VALUES(2,1,2,2,4002,0,'2026-11-21T02:00:01.000000Z','2026-11-21T02:00:02.000000Z',1000100000,400000,410000,1);
INSERT INTO "evidence_end" VALUES(3,0,3,2,4001,0,'2026-11-21T02:00:02.000000Z','2026-11-21T02:00:03.000000Z',1000100000,400000,410000,1);
INSERT INTO "evidence_end" VALUES(3,1,4,1,4002,0,'2026-11-21T02:00:02.000000Z','2026-11-21T02:00:03.000000Z',1000100000,400000,410000,1);
INSERT INTO "evidence_end" VALUES(4,0,3,2,4001,0,'2026-11-21T02:00:03.000000Z','2026-11-21T02:00:04.000000Z',1000100000,400000,410000,1);
INSERT INTO "evidence_end" VALUES(4,1,4,1,4002,0,'2026-11-21T02:00:03.000000Z','2026-11-21T02:00:04.000000Z',1000100000,400000,410000,1);
CREATE TABLE fact ( -- one fact
    fact_part_id INTEGER NOT NULL REFERENCES fact_part, -- its part
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- nic.eth0.driver, sysctl.net.core.rmem_max, ...
    value NOT NULL CHECK (typeof(value) IN ('integer', 'real', 'text')), -- in the unit of the name, if it has one
    PRIMARY KEY (fact_part_id, name)
) WITHOUT ROWID;
INSERT INTO "fact" VALUES(1,'kernel.cmdline','quiet');
INSERT INTO "fact" VALUES(1,'kernel.release','6.1.0-26-amd64');
INSERT INTO "fact" VALUES(1,'kernel.smt','true');
INSERT INTO "fact" VALUES(2,'boot.boot_utc','2026-11-20T02:00:00.000000Z');
INSERT INTO "fact" VALUES(2,'boot.id','boot-of-n1');
INSERT INTO "fact" VALUES(3,'nic.eth0.driver','mlx5_core');
INSERT INTO "fact" VALUES(3,'nic.eth0.mtu_bytes',1500);
INSERT INTO "fact" VALUES(3,'nic.eth0.name','eth0');
INSERT INTO "fact" VALUES(3,'nic.eth0.speed_bps',100000000000);
INSERT INTO "fact" VALUES(4,'sysctl.net.core.rmem_max',4194304);
INSERT INTO "fact" VALUES(4,'sysctl.net.ipv4.tcp_rmem','4096 131072 6291456');
INSERT INTO "fact" VALUES(5,'boot.boot_utc','2026-11-20T02:00:00.000000Z');
INSERT INTO "fact" VALUES(5,'boot.id','boot-of-n2');
CREATE TABLE fact_part ( -- facts that stand together: one top-level key of a node's facts
    fact_part_id INTEGER PRIMARY KEY, -- key
    part TEXT NOT NULL CHECK (typeof(part) = 'text'), -- sysctl, nic, boot, ...
    sha256 BLOB NOT NULL CHECK (typeof(sha256) = 'blob'), -- of the canonical JSON
    UNIQUE (part, sha256)
);
INSERT INTO "fact_part" VALUES(1,'kernel',X'E8ED25306E4D1987A07080EC4BF24ADC548BE9CBA2F39965BEBD2D3B8ECE9015');
INSERT INTO "fact_part" VALUES(2,'boot',X'86A63AC8404B43B8A535F9903B7C9B5CACF40530672C26A78BAA03EFB3DB75E3');
INSERT INTO "fact_part" VALUES(3,'nic',X'14FA22A01BEF7CC879C9A4412A59ACFF296482386557C928206D45CE5E395F9E');
INSERT INTO "fact_part" VALUES(4,'sysctl',X'DD6B160688698AE76D06E9CB3F737B4FE7FB6B78359F6130024EDBFF4D764DDF');
INSERT INTO "fact_part" VALUES(5,'boot',X'3F309AC3C673ACA8F3843720F5AB79D930F5F78800D12B6ECCF353EF7C6584C8');
CREATE TABLE fact_set ( -- all facts of a node at a time
    fact_set_id INTEGER PRIMARY KEY, -- key
    sha256 BLOB NOT NULL UNIQUE CHECK (typeof(sha256) = 'blob') -- of the canonical JSON of all its parts
);
INSERT INTO "fact_set" VALUES(1,X'948393A236FE2389EB18487B68394AC168647BDBFBF5733F6D93FC509DCFEC95');
INSERT INTO "fact_set" VALUES(2,X'FED070D909C5AC0F6C5CADC7CD67F39FCEFA0F7399A6F47CB8470AFF7C090BD7');
CREATE TABLE fact_set_part ( -- which parts make a set
    fact_set_id INTEGER NOT NULL REFERENCES fact_set, -- the set
    fact_part_id INTEGER NOT NULL REFERENCES fact_part, -- one part
    PRIMARY KEY (fact_set_id, fact_part_id)
) WITHOUT ROWID;
INSERT INTO "fact_set_part" VALUES(1,1);
INSERT INTO "fact_set_part" VALUES(1,2);
INSERT INTO "fact_set_part" VALUES(1,3);
INSERT INTO "fact_set_part" VALUES(1,4);
INSERT INTO "fact_set_part" VALUES(2,1);
INSERT INTO "fact_set_part" VALUES(2,3);
INSERT INTO "fact_set_part" VALUES(2,4);
INSERT INTO "fact_set_part" VALUES(2,5);
CREATE TABLE gauge ( -- values that were read rather than counted
    result_id INTEGER NOT NULL REFERENCES result, -- of which result
    end_index INTEGER NOT NULL CHECK (end_index IN (0, 1)), -- 0: client or MPI rank 0; 1: server or MPI rank 1
    counter_id INTEGER NOT NULL REFERENCES counter, -- which gauge
    before NOT NULL CHECK (typeof(before) IN ('integer', 'real', 'text')), -- first reading, in counter.unit
    after CHECK (typeof(after) IN ('integer', 'real', 'text', 'null')), -- second reading; NULL: read once
    PRIMARY KEY (result_id, end_index, counter_id)
) WITHOUT ROWID;
INSERT INTO "gauge" VALUES(1,0,17,1000000000,999995904);
INSERT INTO "gauge" VALUES(1,0,18,0.25,NULL);
INSERT INTO "gauge" VALUES(1,1,17,1000000000,999995904);
INSERT INTO "gauge" VALUES(1,1,18,0.25,NULL);
INSERT INTO "gauge" VALUES(2,0,17,1000000000,999995904);
INSERT INTO "gauge" VALUES(2,0,18,0.25,NULL);
INSERT INTO "gauge" VALUES(2,1,17,1000000000,999995904);
INSERT INTO "gauge" VALUES(2,1,18,0.25,NULL);
INSERT INTO "gauge" VALUES(3,0,17,1000000000,999995904);
INSERT INTO "gauge" VALUES(3,0,18,0.25,NULL);
INSERT INTO "gauge" VALUES(3,1,17,1000000000,999995904);
INSERT INTO "gauge" VALUES(3,1,18,0.25,NULL);
INSERT INTO "gauge" VALUES(4,0,17,1000000000,999995904);
INSERT INTO "gauge" VALUES(4,0,18,0.25,NULL);
INSERT INTO "gauge" VALUES(4,1,17,1000000000,999995904);
INSERT INTO "gauge" VALUES(4,1,18,0.25,NULL);
CREATE TABLE granted ( -- one granted value
    granted_set_id INTEGER NOT NULL REFERENCES granted_set, -- the set
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- client_send_buffer_bytes, ...; its suffix is its unit
    value NOT NULL CHECK (typeof(value) IN ('integer', 'real', 'text')), -- in the unit of the name
    PRIMARY KEY (granted_set_id, name)
) WITHOUT ROWID;
INSERT INTO "granted" VALUES(1,'client_send_buffer_bytes',425984);
INSERT INTO "granted" VALUES(1,'congestion_control','cubic');
INSERT INTO "granted" VALUES(1,'mss_bytes',1448);
CREATE TABLE granted_set ( -- what the system granted (real socket buffers, MSS, ...), stored once by content
    granted_set_id INTEGER PRIMARY KEY, -- key
    sha256 BLOB NOT NULL UNIQUE CHECK (typeof(sha256) = 'blob') -- of the canonical JSON
);
INSERT INTO "granted_set" VALUES(1,X'A2FB916FB8C579723D0D9532ADC5AF8A223149641717035EA9E151580C7D74DD');
CREATE TABLE histogram ( -- distribution of a result's samples
    result_id INTEGER NOT NULL REFERENCES result, -- of which result
    lower INTEGER NOT NULL CHECK (typeof(lower) = 'integer'), -- lower bound of the bucket, in unit
    unit TEXT NOT NULL REFERENCES unit (name), -- unit of lower
    sample_count INTEGER NOT NULL CHECK (typeof(sample_count) = 'integer'), -- samples in it
    PRIMARY KEY (result_id, lower)
) WITHOUT ROWID;
INSERT INTO "histogram" VALUES(1,50000,'ns',900);
INSERT INTO "histogram" VALUES(1,60000,'ns',90);
INSERT INTO "histogram" VALUES(1,120000,'ns',10);
INSERT INTO "histogram" VALUES(2,50000,'ns',900);
INSERT INTO "histogram" VALUES(2,60000,'ns',90);
INSERT INTO "histogram" VALUES(2,120000,'ns',10);
INSERT INTO "histogram" VALUES(3,50000,'ns',900);
INSERT INTO "histogram" VALUES(3,60000,'ns',90);
INSERT INTO "histogram" VALUES(3,120000,'ns',10);
INSERT INTO "histogram" VALUES(4,50000,'ns',900);
INSERT INTO "histogram" VALUES(4,60000,'ns',90);
INSERT INTO "histogram" VALUES(4,120000,'ns',10);
CREATE TABLE ingest_file ( -- what was loaded already; the same bytes twice change nothing
    ingest_file_id INTEGER PRIMARY KEY, -- key
    run_cluster_id INTEGER NOT NULL REFERENCES run_cluster, -- whose
    path TEXT NOT NULL CHECK (typeof(path) = 'text'), -- below the run folder
    sha256 BLOB NOT NULL CHECK (typeof(sha256) = 'blob'), -- of the file, and for results of its .status too
    loaded_utc TEXT NOT NULL CHECK (loaded_utc GLOB '????-??-??T??:??:??*Z'), -- when, UTC
    UNIQUE (run_cluster_id, path)
);
INSERT INTO "ingest_file" VALUES(1,1,'alpha/jobs/j00001/1/facts-n1.json',X'8D4D29BB0179F26C36EBE1B9F4EC5D51ECF0270031C673E471725D187973A6D7','2026-11-21T23:25:49.491814Z');
INSERT INTO "ingest_file" VALUES(2,1,'alpha/jobs/j00001/1/facts-n2.json',X'7C947F3BCC69357573DFBFF9AA5FB46A0DE32A94829EF08A9AA60AEE69A98B16','2026-11-21T23:25:49.492353Z');
INSERT INTO "ingest_file" VALUES(3,1,'alpha/jobs/j00001/1/t1-r1.json',X'D000E06C3B7C59C862451368B988343D818AFA5D0163EEBBF08DEEE2020B1E20','2026-11-21T23:25:49.492616Z');
INSERT INTO "ingest_file" VALUES(4,1,'alpha/jobs/j00001/1/t2-r1.json',X'2A02DFADD533A74CB35060119ADCFF2BC14F73A2D9CF5F761C8EFF154C6C2DC8','2026-11-21T23:25:49.493637Z');
INSERT INTO "ingest_file" VALUES(5,1,'alpha/jobs/j00002/1/facts-n2.json',X'7C947F3BCC69357573DFBFF9AA5FB46A0DE32A94829EF08A9AA60AEE69A98B16','2026-11-21T23:25:49.493984Z');
INSERT INTO "ingest_file" VALUES(6,1,'alpha/jobs/j00002/1/facts-n1.json',X'8D4D29BB0179F26C36EBE1B9F4EC5D51ECF0270031C673E471725D187973A6D7','2026-11-21T23:25:49.494119Z');
INSERT INTO "ingest_file" VALUES(7,1,'alpha/jobs/j00002/1/t1-r1.json',X'5A4C98B748A0977E76741F7E57A8D20AE2835FD76FBFB48F7B4E950F5AB91845','2026-11-21T23:25:49.494279Z');
INSERT INTO "ingest_file" VALUES(8,1,'alpha/jobs/j00002/1/t2-r1.json',X'2F492F299956AA4AC8CF71B2CA2BA72F757E15CBBF9416A8413008CEA6E3B9BE','2026-11-21T23:25:49.494580Z');
CREATE TABLE job ( -- one allocation that the plan wanted
    job_id INTEGER PRIMARY KEY, -- key
    run_cluster_id INTEGER NOT NULL REFERENCES run_cluster, -- whose plan
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- j00001, ... in pair order
    client_node_id INTEGER NOT NULL REFERENCES node, -- node of the client (MPI: rank 0)
    server_node_id INTEGER NOT NULL REFERENCES node, -- node of the server (MPI: rank 1)
    UNIQUE (run_cluster_id, name)
);
INSERT INTO "job" VALUES(1,1,'j00001',1,2);
INSERT INTO "job" VALUES(2,1,'j00002',2,1);
CREATE TABLE kernel ( -- a way of measuring
    kernel_id INTEGER PRIMARY KEY, -- key
    name TEXT NOT NULL UNIQUE CHECK (typeof(name) = 'text'), -- tcp_stream, udp_pingpong, ...
    program TEXT NOT NULL CHECK (typeof(program) = 'text'), -- the program that holds it: hpcq-net, hpcq-mpi
    summary TEXT NOT NULL CHECK (typeof(summary) = 'text'), -- one line for people
    method TEXT NOT NULL CHECK (typeof(method) = 'text'), -- how it measures, in words
    main_metric_name_id INTEGER REFERENCES metric_name -- what to look at first: a median, else the first with a direction; NULL: none
);
INSERT INTO "kernel" VALUES(1,'tcp_stream','hpcq-net','throughput of one TCP connection, one way','The sender calls send() with message_bytes until duration_s is over; the receiver reads until it has every byte that the sender says, on the control channel, it sent. The rate is the receiver''s: bytes after its first read over the time from its first read to its last.',1);
INSERT INTO "kernel" VALUES(2,'tcp_pingpong','hpcq-net','round trip of a message over one TCP connection','The client stamps the time before send(), sends message_bytes, receives the same number back and stamps again: one sample is the full round trip, not half of it. One message is under way at a time, with blocking calls.',12);
CREATE TABLE link ( -- the network between two clusters; its row of `cluster` carries its name, <from>+<to>
    cluster_id INTEGER PRIMARY KEY REFERENCES cluster, -- the link's own row there
    from_cluster_id INTEGER NOT NULL REFERENCES cluster, -- one end
    to_cluster_id INTEGER NOT NULL REFERENCES cluster -- the other end
);
CREATE TABLE link_end ( -- one side of an attempt over a link: a job of its own on its own cluster
    attempt_id INTEGER NOT NULL REFERENCES attempt, -- of which attempt
    side TEXT NOT NULL CHECK (side IN ('from', 'to')), -- which end of the link
    node_id INTEGER NOT NULL REFERENCES node, -- where
    tag TEXT NOT NULL UNIQUE CHECK (typeof(tag) = 'text'), -- ours; the job's name in its scheduler
    native_id TEXT CHECK (typeof(native_id) IN ('text', 'null')), -- its scheduler's; NULL: never accepted
    outcome TEXT CHECK (typeof(outcome) IN ('text', 'null')), -- words of attempt.outcome; NULL: lives
    reason TEXT CHECK (typeof(reason) IN ('text', 'null')), -- in words, from scheduler, script or driver
    exit_code INTEGER CHECK (typeof(exit_code) IN ('integer', 'null')), -- of the script; NULL: not known
    role TEXT CHECK (role IS NULL OR role IN ('client', 'server')), -- what it was; NULL: the sides never met
    address TEXT CHECK (typeof(address) IN ('text', 'null')), -- where it listened; NULL: it did not
    port INTEGER CHECK (typeof(port) IN ('integer', 'null')), -- on which port
    reaches TEXT CHECK (reaches IS NULL OR reaches IN ('open', 'closed', 'not probed', 'unknown')), -- could it connect across
    expected_wait_s REAL CHECK (typeof(expected_wait_s) IN ('real', 'null')), -- its scheduler's estimate, s; NULL: none
    submitted_utc TEXT CHECK (submitted_utc IS NULL OR submitted_utc GLOB '????-??-??T??:??:??*Z'), -- accepted, UTC
    started_utc TEXT CHECK (started_utc IS NULL OR started_utc GLOB '????-??-??T??:??:??*Z'), -- script began, UTC
    ended_utc TEXT CHECK (ended_utc IS NULL OR ended_utc GLOB '????-??-??T??:??:??*Z'), -- script or scheduler, UTC
    PRIMARY KEY (attempt_id, side)
) WITHOUT ROWID;
CREATE TABLE metric ( -- the numbers
    result_id INTEGER NOT NULL REFERENCES result, -- of which result
    metric_name_id INTEGER NOT NULL REFERENCES metric_name, -- which metric
    value REAL NOT NULL CHECK (typeof(value) = 'real' AND abs(value) <= 1.7976931348623157e308), -- in metric_name.unit
    PRIMARY KEY (result_id, metric_name_id)
) WITHOUT ROWID;
INSERT INTO "metric" VALUES(1,1,1.90266757874185711138e+08);
INSERT INTO "metric" VALUES(1,2,0.25);
INSERT INTO "metric" VALUES(1,3,0.25);
INSERT INTO "metric" VALUES(1,4,0.25);
INSERT INTO "metric" VALUES(1,5,0.25);
INSERT INTO "metric" VALUES(1,6,0.25);
INSERT INTO "metric" VALUES(1,7,0.25);
INSERT INTO "metric" VALUES(1,8,0.25);
INSERT INTO "metric" VALUES(1,9,0.25);
INSERT INTO "metric" VALUES(1,10,0.25);
INSERT INTO "metric" VALUES(1,11,0.25);
INSERT INTO "metric" VALUES(2,12,75888.3747044048);
INSERT INTO "metric" VALUES(2,13,8.43204163382275583005e+04);
INSERT INTO "metric" VALUES(2,14,9.27524579720503243151e+04);
INSERT INTO "metric" VALUES(2,15,1.01184499605873075777e+05);
INSERT INTO "metric" VALUES(2,16,6.74563330705820553712e+04);
INSERT INTO "metric" VALUES(2,17,1.09616541239695827248e+05);
INSERT INTO "metric" VALUES(2,18,0.25);
INSERT INTO "metric" VALUES(2,19,0.25);
INSERT INTO "metric" VALUES(2,20,0.25);
INSERT INTO "metric" VALUES(2,21,0.25);
INSERT INTO "metric" VALUES(2,22,0.25);
INSERT INTO "metric" VALUES(2,23,0.25);
INSERT INTO "metric" VALUES(2,24,0.25);
INSERT INTO "metric" VALUES(3,1,1.90082659820568650958e+08);
INSERT INTO "metric" VALUES(3,2,0.25);
INSERT INTO "metric" VALUES(3,3,0.25);
INSERT INTO "metric" VALUES(3,4,0.25);
INSERT INTO "metric" VALUES(3,5,0.25);
INSERT INTO "metric" VALUES(3,6,0.25);
INSERT INTO "metric" VALUES(3,7,0.25);
INSERT INTO "metric" VALUES(3,8,0.25);
INSERT INTO "metric" VALUES(3,9,0.25);
INSERT INTO "metric" VALUES(3,10,0.25);
INSERT INTO "metric" VALUES(3,11,0.25);
INSERT INTO "metric" VALUES(4,12,7.32378021016510610948e+04);
INSERT INTO "metric" VALUES(4,13,8.13753356685011822267e+04);
INSERT INTO "metric" VALUES(4,14,8.95128692353512888085e+04);
INSERT INTO "metric" VALUES(4,15,9.76504028022014099446e+04);
INSERT INTO "metric" VALUES(4,16,6.51002685348009399587e+04);
INSERT INTO "metric" VALUES(4,17,1.05787936369051531069e+05);
INSERT INTO "metric" VALUES(4,18,0.25);
INSERT INTO "metric" VALUES(4,19,0.25);
INSERT INTO "metric" VALUES(4,20,0.25);
INSERT INTO "metric" VALUES(4,21,0.25);
INSERT INTO "metric" VALUES(4,22,0.25);
INSERT INTO "metric" VALUES(4,23,0.25);
INSERT INTO "metric" VALUES(4,24,0.25);
CREATE TABLE metric_name ( -- what a kernel measures
    metric_name_id INTEGER PRIMARY KEY, -- key
    kernel_id INTEGER NOT NULL REFERENCES kernel, -- the kernel that reports it
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- throughput_bps, ...; its suffix is its unit
    unit TEXT NOT NULL REFERENCES unit (name), -- unit of metric.value
    better TEXT NOT NULL CHECK (better IN ('higher', 'lower', 'none')), -- which direction is good
    help TEXT NOT NULL CHECK (typeof(help) = 'text'), -- what it says
    position_no INTEGER NOT NULL CHECK (typeof(position_no) = 'integer'), -- order in the kernel's own list, from 1
    UNIQUE (kernel_id, name)
);
INSERT INTO "metric_name" VALUES(1,1,'throughput_bps','bps','higher','bits a second at the receiver, from its first read to its last (the first read''s bytes left out)',1);
INSERT INTO "metric_name" VALUES(2,1,'sent_bps','bps','none','bits a second that the sender''s socket took',2);
INSERT INTO "metric_name" VALUES(3,1,'sent_count','count','none','whole messages sent',3);
INSERT INTO "metric_name" VALUES(4,1,'sent_bytes','bytes','none','bytes sent',4);
INSERT INTO "metric_name" VALUES(5,1,'received_bytes','bytes','none','bytes received',5);
INSERT INTO "metric_name" VALUES(6,1,'retransmit_count','count','lower','segments sent again (TCP_INFO)',6);
INSERT INTO "metric_name" VALUES(7,1,'tcp_round_trip_ns','ns','lower','the sender''s kernel''s smoothed round trip at the end of the measurement, under load (TCP_INFO)',7);
INSERT INTO "metric_name" VALUES(8,1,'client_cpu_ratio','ratio','lower','CPU time of the client''s process over the measurement (1.0: one core)',8);
INSERT INTO "metric_name" VALUES(9,1,'server_cpu_ratio','ratio','lower','CPU time of the server''s process over the measurement (1.0: one core)',9);
INSERT INTO "metric_name" VALUES(10,1,'client_node_cpu_ratio','ratio','none','busy share of all CPUs of the client''s node between the snapshots, from /proc/stat ticks',10);
INSERT INTO "metric_name" VALUES(11,1,'server_node_cpu_ratio','ratio','none','busy share of all CPUs of the server''s node between the snapshots, from /proc/stat ticks',11);
INSERT INTO "metric_name" VALUES(12,2,'round_trip_p50_ns','ns','lower','median round trip, from the histogram (within 0.8 %)',1);
INSERT INTO "metric_name" VALUES(13,2,'round_trip_p90_ns','ns','lower','90 of 100 round trips were at most this',2);
INSERT INTO "metric_name" VALUES(14,2,'round_trip_p99_ns','ns','lower','99 of 100 round trips were at most this',3);
INSERT INTO "metric_name" VALUES(15,2,'round_trip_p999_ns','ns','lower','999 of 1000 round trips were at most this',4);
INSERT INTO "metric_name" VALUES(16,2,'round_trip_min_ns','ns','lower','smallest round trip (exact)',5);
INSERT INTO "metric_name" VALUES(17,2,'round_trip_max_ns','ns','lower','largest round trip (exact)',6);
INSERT INTO "metric_name" VALUES(18,2,'round_trip_mean_ns','ns','lower','mean round trip (exact)',7);
INSERT INTO "metric_name" VALUES(19,2,'operation_count','count','none','round trips measured',8);
INSERT INTO "metric_name" VALUES(20,2,'retransmit_count','count','lower','segments that the client sent again (TCP_INFO)',9);
INSERT INTO "metric_name" VALUES(21,2,'client_cpu_ratio','ratio','lower','CPU time of the client''s process over the measurement (1.0: one core)',10);
INSERT INTO "metric_name" VALUES(22,2,'server_cpu_ratio','ratio','lower','CPU time of the server''s process over the measurement (1.0: one core)',11);
INSERT INTO "metric_name" VALUES(23,2,'client_node_cpu_ratio','ratio','none','busy share of all CPUs of the client''s node between the snapshots, from /proc/stat ticks',12);
INSERT INTO "metric_name" VALUES(24,2,'server_node_cpu_ratio','ratio','none','busy share of all CPUs of the server''s node between the snapshots, from /proc/stat ticks',13);
CREATE TABLE node ( -- a node, as its scheduler calls it
    node_id INTEGER PRIMARY KEY, -- key; survives a rename, and so does the node's history
    cluster_id INTEGER NOT NULL REFERENCES cluster, -- where it is
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- to rename a node, update this
    UNIQUE (cluster_id, name)
);
INSERT INTO "node" VALUES(1,1,'n1');
INSERT INTO "node" VALUES(2,1,'n2');
INSERT INTO "node" VALUES(3,1,'n9');
INSERT INTO "node" VALUES(4,1,'n3');
CREATE TABLE node_alias ( -- names that a node had; files of older runs still load to the same node
    cluster_id INTEGER NOT NULL REFERENCES cluster, -- where it is
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- the former name
    node_id INTEGER NOT NULL REFERENCES node, -- who has it now
    PRIMARY KEY (cluster_id, name)
) WITHOUT ROWID;
CREATE TABLE node_boot ( -- ledger: every boot of a node that a result or its facts showed
    node_boot_id INTEGER PRIMARY KEY, -- key
    node_id INTEGER NOT NULL REFERENCES node, -- which node
    boot_id TEXT NOT NULL CHECK (typeof(boot_id) = 'text'), -- the kernel's random boot id
    first_seen_utc TEXT NOT NULL CHECK (first_seen_utc GLOB '????-??-??T??:??:??*Z'), -- earliest evidence, UTC
    last_seen_utc TEXT NOT NULL CHECK (last_seen_utc GLOB '????-??-??T??:??:??*Z'), -- latest evidence, UTC
    UNIQUE (node_id, boot_id)
);
INSERT INTO "node_boot" VALUES(1,1,'boot-of-n1','2026-11-21T02:00:00.000000Z','2026-11-21T02:00:03.000000Z');
INSERT INTO "node_boot" VALUES(2,2,'boot-of-n2','2026-11-21T02:00:00.000000Z','2026-11-21T02:00:03.000000Z');
CREATE TABLE node_facts ( -- which facts a node had in an attempt
    attempt_id INTEGER NOT NULL REFERENCES attempt, -- when
    node_id INTEGER NOT NULL REFERENCES node, -- who
    fact_set_id INTEGER NOT NULL REFERENCES fact_set, -- what
    PRIMARY KEY (attempt_id, node_id)
) WITHOUT ROWID;
INSERT INTO "node_facts" VALUES(1,1,1);
INSERT INTO "node_facts" VALUES(1,2,2);
INSERT INTO "node_facts" VALUES(2,1,1);
INSERT INTO "node_facts" VALUES(2,2,2);
CREATE TABLE node_group ( -- which leaf switch, rack or other group a node belonged to, and since when that was known
    node_id INTEGER NOT NULL REFERENCES node, -- who
    kind TEXT NOT NULL CHECK (typeof(kind) = 'text'), -- leaf, rack, ...
    since_utc TEXT NOT NULL CHECK (since_utc GLOB '????-??-??T??:??:??*Z'), -- first seen there, UTC; the latest row holds
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- of the group
    PRIMARY KEY (node_id, kind, since_utc)
) WITHOUT ROWID;
INSERT INTO "node_group" VALUES(1,'leaf','2026-11-21T23:25:49.504723Z','leaf1');
INSERT INTO "node_group" VALUES(2,'leaf','2026-11-21T23:25:49.504723Z','leaf1');
INSERT INTO "node_group" VALUES(4,'leaf','2026-11-21T23:25:49.504723Z','leaf2');
CREATE TABLE option ( -- what can be set in a kernel
    option_id INTEGER PRIMARY KEY, -- key
    kernel_id INTEGER NOT NULL REFERENCES kernel, -- the kernel that has it
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- message_bytes, ...; its suffix is its unit
    type TEXT NOT NULL CHECK (typeof(type) = 'text'), -- integer, number, boolean, choice
    unit TEXT NOT NULL REFERENCES unit (name), -- unit of parameter.value
    -- the default it had when this database first saw it, as JSON, and for ever after: see series; NULL: no default known
    neutral TEXT CHECK (typeof(neutral) IN ('text', 'null')), -- JSON
    help TEXT NOT NULL CHECK (typeof(help) = 'text'), -- what it does
    UNIQUE (kernel_id, name)
);
INSERT INTO "option" VALUES(1,1,'message_bytes','integer','bytes','131072','bytes given to one send()');
INSERT INTO "option" VALUES(2,1,'direction','choice','number','"client_to_server"','which end sends');
INSERT INTO "option" VALUES(3,1,'duration_s','number','s','2','length of the measurement');
INSERT INTO "option" VALUES(4,1,'warmup_s','number','s','0.2','length of the phase before it, not measured');
INSERT INTO "option" VALUES(5,1,'operation_count_max','integer','number','0','end the measurement after this many operations; 0: by duration_s alone');
INSERT INTO "option" VALUES(6,1,'client_cpu_index','integer','index','-1','pin the client to this CPU; -1: not');
INSERT INTO "option" VALUES(7,1,'server_cpu_index','integer','index','-1','pin the server to this CPU; -1: not');
INSERT INTO "option" VALUES(8,1,'send_buffer_bytes','integer','bytes','0','SO_SNDBUF of both ends; 0: the system''s (auto-tuned)');
INSERT INTO "option" VALUES(9,1,'receive_buffer_bytes','integer','bytes','0','SO_RCVBUF of both ends; 0: the system''s (auto-tuned)');
INSERT INTO "option" VALUES(10,1,'mss_bytes','integer','bytes','0','TCP_MAXSEG of both ends; 0: the path''s');
INSERT INTO "option" VALUES(11,1,'no_delay','boolean','number','false','TCP_NODELAY: small segments are not held back');
INSERT INTO "option" VALUES(12,1,'congestion_control','choice','number','"system"','TCP_CONGESTION of both ends; system: its default');
INSERT INTO "option" VALUES(13,2,'message_bytes','integer','bytes','1','bytes each way');
INSERT INTO "option" VALUES(14,2,'duration_s','number','s','2','length of the measurement');
INSERT INTO "option" VALUES(15,2,'warmup_s','number','s','0.2','length of the phase before it, not measured');
INSERT INTO "option" VALUES(16,2,'operation_count_max','integer','number','0','end the measurement after this many operations; 0: by duration_s alone');
INSERT INTO "option" VALUES(17,2,'client_cpu_index','integer','index','-1','pin the client to this CPU; -1: not');
INSERT INTO "option" VALUES(18,2,'server_cpu_index','integer','index','-1','pin the server to this CPU; -1: not');
INSERT INTO "option" VALUES(19,2,'reply_timeout_s','number','s','10','a reply that takes longer ends the measurement');
INSERT INTO "option" VALUES(20,2,'send_buffer_bytes','integer','bytes','0','SO_SNDBUF of both ends; 0: the system''s (auto-tuned)');
INSERT INTO "option" VALUES(21,2,'receive_buffer_bytes','integer','bytes','0','SO_RCVBUF of both ends; 0: the system''s (auto-tuned)');
INSERT INTO "option" VALUES(22,2,'mss_bytes','integer','bytes','0','TCP_MAXSEG of both ends; 0: the path''s');
INSERT INTO "option" VALUES(23,2,'no_delay','boolean','number','true','TCP_NODELAY: small segments are not held back');
INSERT INTO "option" VALUES(24,2,'congestion_control','choice','number','"system"','TCP_CONGESTION of both ends; system: its default');
CREATE TABLE parameter ( -- one parameter of a set
    parameter_set_id INTEGER NOT NULL REFERENCES parameter_set, -- the set
    option_id INTEGER NOT NULL REFERENCES option, -- which option
    value NOT NULL CHECK (typeof(value) IN ('integer', 'real', 'text')), -- in option.unit; booleans are true and false
    PRIMARY KEY (parameter_set_id, option_id)
) WITHOUT ROWID;
INSERT INTO "parameter" VALUES(1,1,65536);
INSERT INTO "parameter" VALUES(1,2,'client_to_server');
INSERT INTO "parameter" VALUES(1,3,2);
INSERT INTO "parameter" VALUES(1,4,0.2);
INSERT INTO "parameter" VALUES(1,5,0);
INSERT INTO "parameter" VALUES(1,6,-1);
INSERT INTO "parameter" VALUES(1,7,-1);
INSERT INTO "parameter" VALUES(1,8,0);
INSERT INTO "parameter" VALUES(1,9,0);
INSERT INTO "parameter" VALUES(1,10,0);
INSERT INTO "parameter" VALUES(1,11,'false');
INSERT INTO "parameter" VALUES(1,12,'system');
INSERT INTO "parameter" VALUES(2,13,64);
INSERT INTO "parameter" VALUES(2,14,2);
INSERT INTO "parameter" VALUES(2,15,0.2);
INSERT INTO "parameter" VALUES(2,16,0);
INSERT INTO "parameter" VALUES(2,17,-1);
INSERT INTO "parameter" VALUES(2,18,-1);
INSERT INTO "parameter" VALUES(2,19,10.0);
INSERT INTO "parameter" VALUES(2,20,0);
INSERT INTO "parameter" VALUES(2,21,0);
INSERT INTO "parameter" VALUES(2,22,0);
INSERT INTO "parameter" VALUES(2,23,'true');
INSERT INTO "parameter" VALUES(2,24,'system');
CREATE TABLE parameter_set ( -- all parameters of a test, as planned and echoed by the kernel, stored once
    parameter_set_id INTEGER PRIMARY KEY, -- key
    kernel_id INTEGER NOT NULL REFERENCES kernel, -- whose parameters they are
    sha256 BLOB NOT NULL CHECK (typeof(sha256) = 'blob'), -- of json
    json TEXT NOT NULL CHECK (typeof(json) = 'text'), -- canonical: keys sorted, no blanks
    size_bytes INTEGER CHECK (typeof(size_bytes) IN ('integer', 'null')), -- message or datagram size, bytes; NULL: has none
    UNIQUE (kernel_id, sha256)
);
INSERT INTO "parameter_set" VALUES(1,1,X'D29CC74E285BC8DC2F6C4A9D5869F42F6543A25630DCD7810ED2F7920DE8FC05','{"client_cpu_index":-1,"congestion_control":"system","direction":"client_to_server","duration_s":2,"message_bytes":65536,"mss_bytes":0,"no_delay":false,"operation_count_max":0,"receive_buffer_bytes":0,"send_buffer_bytes":0,"server_cpu_index":-1,"warmup_s":0.2}',65536);
INSERT INTO "parameter_set" VALUES(2,2,X'A999C8053F00A07E16F82608E030193314C1361C86ACF64B7CE47215DEED7D58','{"client_cpu_index":-1,"congestion_control":"system","duration_s":2,"message_bytes":64,"mss_bytes":0,"no_delay":true,"operation_count_max":0,"receive_buffer_bytes":0,"reply_timeout_s":10,"send_buffer_bytes":0,"server_cpu_index":-1,"warmup_s":0.2}',64);
CREATE TABLE result ( -- one planned repetition of one test, by the attempt that brought it, or not brought at all
    result_id INTEGER PRIMARY KEY, -- key
    job_id INTEGER NOT NULL REFERENCES job, -- whose
    test_no INTEGER NOT NULL CHECK (typeof(test_no) = 'integer'), -- number of the test in the plan, from 1
    repetition_no INTEGER NOT NULL CHECK (typeof(repetition_no) = 'integer'), -- from 1
    attempt_id INTEGER REFERENCES attempt, -- who brought it; NULL when not_measured
    -- Each planned repetition has exactly one row with final = 1: the first measured one, else the last try.
    final INTEGER NOT NULL CHECK (final IN (0, 1)), -- 1: this row counts
    series_id INTEGER NOT NULL REFERENCES series, -- what it may be compared with
    parameter_set_id INTEGER NOT NULL REFERENCES parameter_set, -- parameters as planned
    outcome TEXT NOT NULL CHECK (outcome IN ('measured', 'invalid', 'failed', 'not_measured')), -- only measured counts
    reason TEXT CHECK (typeof(reason) = 'text' OR (reason IS NULL AND outcome = 'measured')), -- why it is not measured
    started_utc TEXT CHECK (started_utc IS NULL OR started_utc GLOB '????-??-??T??:??:??*Z'), -- start of measuring, UTC
    duration_ns INTEGER CHECK (typeof(duration_ns) IN ('integer', 'null')), -- of the measured part, ns
    exit_code INTEGER CHECK (typeof(exit_code) IN ('integer', 'null')), -- of the kernel; NULL: not known
    disturbed INTEGER NOT NULL CHECK (disturbed IN (0, 1)), -- 1: other work was seen on a node meanwhile
    crossed_interface TEXT NOT NULL CHECK (crossed_interface IN ('yes', 'no', 'unknown')), -- did the bytes use the network
    build_id INTEGER REFERENCES build, -- the binary; NULL: not known
    granted_set_id INTEGER REFERENCES granted_set, -- what the system gave; NULL: not reported
    ingest_file_id INTEGER REFERENCES ingest_file -- the raw line's file; NULL: there is none
);
INSERT INTO "result" VALUES(1,1,1,1,1,1,1,1,'measured',NULL,'2026-11-21T02:00:00.000000Z',1000000000,0,0,'unknown',1,1,3);
INSERT INTO "result" VALUES(2,1,2,1,1,1,2,2,'measured',NULL,'2026-11-21T02:00:01.000000Z',1000000000,0,0,'unknown',1,1,4);
INSERT INTO "result" VALUES(3,2,1,1,2,1,3,1,'measured',NULL,'2026-11-21T02:00:02.000000Z',1000000000,0,0,'unknown',1,1,7);
INSERT INTO "result" VALUES(4,2,2,1,2,1,4,2,'measured',NULL,'2026-11-21T02:00:03.000000Z',1000000000,0,0,'unknown',1,1,8);
INSERT INTO "result" VALUES(5,1,1,2,NULL,1,1,1,'not_measured','attempt 1 completed, but left no result',NULL,NULL,NULL,0,'unknown',NULL,NULL,NULL);
INSERT INTO "result" VALUES(6,1,1,3,NULL,1,1,1,'not_measured','attempt 1 completed, but left no result',NULL,NULL,NULL,0,'unknown',NULL,NULL,NULL);
INSERT INTO "result" VALUES(7,1,2,2,NULL,1,2,2,'not_measured','attempt 1 completed, but left no result',NULL,NULL,NULL,0,'unknown',NULL,NULL,NULL);
INSERT INTO "result" VALUES(8,1,2,3,NULL,1,2,2,'not_measured','attempt 1 completed, but left no result',NULL,NULL,NULL,0,'unknown',NULL,NULL,NULL);
INSERT INTO "result" VALUES(9,2,1,2,NULL,1,3,1,'not_measured','attempt 1 completed, but left no result',NULL,NULL,NULL,0,'unknown',NULL,NULL,NULL);
INSERT INTO "result" VALUES(10,2,1,3,NULL,1,3,1,'not_measured','attempt 1 completed, but left no result',NULL,NULL,NULL,0,'unknown',NULL,NULL,NULL);
INSERT INTO "result" VALUES(11,2,2,2,NULL,1,4,2,'not_measured','attempt 1 completed, but left no result',NULL,NULL,NULL,0,'unknown',NULL,NULL,NULL);
INSERT INTO "result" VALUES(12,2,2,3,NULL,1,4,2,'not_measured','attempt 1 completed, but left no result',NULL,NULL,NULL,0,'unknown',NULL,NULL,NULL);
CREATE TABLE result_finding ( -- rules that applied to a result
    result_id INTEGER NOT NULL REFERENCES result, -- which result
    rule_id INTEGER NOT NULL REFERENCES rule, -- which rule
    end_index INTEGER NOT NULL CHECK (end_index IN (-1, 0, 1)), -- 0: client, 1: server, -1: both or neither
    message TEXT NOT NULL CHECK (typeof(message) = 'text'), -- the finding with its figures, for people
    figures TEXT NOT NULL CHECK (typeof(figures) = 'text'), -- the figures as a JSON object
    PRIMARY KEY (result_id, rule_id, end_index)
) WITHOUT ROWID;
CREATE TABLE retraction ( -- results that a person declared bad; nothing is deleted, the views leave them out
    result_id INTEGER PRIMARY KEY REFERENCES result, -- which result
    retracted_utc TEXT NOT NULL CHECK (retracted_utc GLOB '????-??-??T??:??:??*Z'), -- when, UTC
    who TEXT NOT NULL CHECK (typeof(who) = 'text'), -- who said so
    reason TEXT NOT NULL CHECK (typeof(reason) = 'text' AND length(reason) > 0) -- why
);
CREATE TABLE retraction_withdrawn ( -- retractions that were taken back; the result counts again
    result_id INTEGER NOT NULL REFERENCES result, -- which result
    withdrawn_utc TEXT NOT NULL CHECK (withdrawn_utc GLOB '????-??-??T??:??:??*Z'), -- when, UTC
    retracted_utc TEXT NOT NULL CHECK (retracted_utc GLOB '????-??-??T??:??:??*Z'), -- when it had been retracted, UTC
    retracted_by TEXT NOT NULL CHECK (typeof(retracted_by) = 'text'), -- who had said so
    reason TEXT NOT NULL CHECK (typeof(reason) = 'text'), -- why it had been retracted
    who TEXT NOT NULL CHECK (typeof(who) = 'text'), -- who took it back
    why TEXT NOT NULL CHECK (typeof(why) = 'text'), -- and why
    PRIMARY KEY (result_id, withdrawn_utc)
) WITHOUT ROWID;
CREATE TABLE rollup ( -- what `hpcq db prune` keeps of the metrics of a job's test: exactly the point that histories show
    series_id INTEGER NOT NULL REFERENCES series, -- which series
    metric_name_id INTEGER NOT NULL REFERENCES metric_name, -- which metric
    job_id INTEGER NOT NULL REFERENCES job, -- which job
    result_id INTEGER NOT NULL REFERENCES result, -- the first of its results; their rows stay, without metrics and evidence
    started_utc TEXT NOT NULL CHECK (started_utc GLOB '????-??-??T??:??:??*Z'), -- start of that result, UTC
    value_count INTEGER NOT NULL CHECK (typeof(value_count) = 'integer'), -- repetitions it stands for
    median REAL NOT NULL CHECK (typeof(median) = 'real'), -- of them, in metric_name.unit
    low REAL NOT NULL CHECK (typeof(low) = 'real'), -- lower end of the median's 95 % interval by order statistics
    high REAL NOT NULL CHECK (typeof(high) = 'real'), -- upper end of it; with fewer than 6 values the whole range
    lowest REAL NOT NULL CHECK (typeof(lowest) = 'real'), -- smallest value
    highest REAL NOT NULL CHECK (typeof(highest) = 'real'), -- largest value
    PRIMARY KEY (series_id, metric_name_id, job_id)
) WITHOUT ROWID;
CREATE TABLE rule ( -- a rule over evidence
    rule_id INTEGER PRIMARY KEY, -- key
    name TEXT NOT NULL UNIQUE CHECK (typeof(name) = 'text'), -- one word
    meaning TEXT NOT NULL CHECK (typeof(meaning) = 'text'), -- what it says when it applies
    advice TEXT NOT NULL CHECK (typeof(advice) = 'text'), -- what to try
    source TEXT NOT NULL CHECK (typeof(source) = 'text') -- where the knowledge comes from
);
CREATE TABLE run ( -- one start of a campaign
    run_id INTEGER PRIMARY KEY, -- key
    name TEXT NOT NULL UNIQUE CHECK (typeof(name) = 'text'), -- <campaign>-<UTC>-<hex>, also the run folder's name
    campaign_id INTEGER NOT NULL REFERENCES campaign, -- which campaign
    document_id INTEGER REFERENCES document, -- the campaign's file; NULL: the copy was not there
    created_utc TEXT NOT NULL CHECK (created_utc GLOB '????-??-??T??:??:??*Z'), -- start, UTC
    seed INTEGER CHECK (typeof(seed) IN ('integer', 'null')), -- of the plan's random choices
    hpcq_version TEXT NOT NULL CHECK (typeof(hpcq_version) = 'text') -- who ran it
);
INSERT INTO "run" VALUES(1,'nightly-20261121T020000Z-00ff',1,1,'2026-11-21T01:59:00.000000Z',7,'0.1.0');
CREATE TABLE run_cluster ( -- a run's part on one cluster: its plan and how far it came
    run_cluster_id INTEGER PRIMARY KEY, -- key
    run_id INTEGER NOT NULL REFERENCES run, -- which run
    cluster_id INTEGER NOT NULL REFERENCES cluster, -- which cluster
    document_id INTEGER REFERENCES document, -- the cluster's file; NULL: the copy was not there
    repetition_count INTEGER NOT NULL CHECK (typeof(repetition_count) = 'integer'), -- repetitions of each test, planned
    pair_count INTEGER NOT NULL CHECK (typeof(pair_count) = 'integer'), -- ordered node pairs, planned
    result_count INTEGER NOT NULL CHECK (typeof(result_count) = 'integer'), -- results, planned
    opened_utc TEXT CHECK (opened_utc IS NULL OR opened_utc GLOB '????-??-??T??:??:??*Z'), -- driver's first start, UTC
    closed_utc TEXT CHECK (closed_utc IS NULL OR closed_utc GLOB '????-??-??T??:??:??*Z'), -- all settled, UTC; NULL: not yet
    loaded_utc TEXT NOT NULL CHECK (loaded_utc GLOB '????-??-??T??:??:??*Z'), -- last loading that changed something, UTC
    UNIQUE (run_id, cluster_id)
);
INSERT INTO "run_cluster" VALUES(1,1,1,2,3,2,12,'2026-11-21T23:25:49.465475Z','2026-11-21T23:25:49.475082Z','2026-11-21T23:25:49.496532Z');
CREATE TABLE run_node ( -- what the plan knew of each node
    run_cluster_id INTEGER NOT NULL REFERENCES run_cluster, -- the plan
    node_id INTEGER NOT NULL REFERENCES node, -- the node
    planned TEXT NOT NULL CHECK (planned IN ('candidate', 'excluded')), -- whether it could be used
    note TEXT NOT NULL CHECK (typeof(note) = 'text'), -- its state when planned, or why it was excluded
    PRIMARY KEY (run_cluster_id, node_id)
) WITHOUT ROWID;
INSERT INTO "run_node" VALUES(1,1,'candidate','idle');
INSERT INTO "run_node" VALUES(1,2,'candidate','idle');
INSERT INTO "run_node" VALUES(1,3,'excluded','state drained');
CREATE TABLE sample ( -- where the raw samples of a result lie
    result_id INTEGER PRIMARY KEY REFERENCES result, -- of which result
    path TEXT NOT NULL CHECK (typeof(path) = 'text'), -- file, beside the raw line's file
    format TEXT NOT NULL CHECK (typeof(format) = 'text'), -- u64-ns-le: 8 bytes each, little end first, ns
    sample_count INTEGER NOT NULL CHECK (typeof(sample_count) = 'integer') -- how many
);
INSERT INTO "sample" VALUES(1,'t1-r1.samples','u64-ns-le',1000);
INSERT INTO "sample" VALUES(2,'t2-r1.samples','u64-ns-le',1000);
INSERT INTO "sample" VALUES(3,'t1-r1.samples','u64-ns-le',1000);
INSERT INTO "sample" VALUES(4,'t2-r1.samples','u64-ns-le',1000);
CREATE TABLE series ( -- all results that may be compared with each other over time; order them by result.started_utc
    -- Part of a series' identity, because a different one is a different measurement: kernel, parameters, client and
    -- server (in this order), the network between them, the name of the toolchain.
    -- Not part of it, because the history must go on and show them as what changed: version and binary of the build,
    -- version of MPI, campaign, test number, scheduler job, driver, sysctls and every other fact.
    -- parameters leaves out what has its option's neutral value. So an option that a later version adds does not split
    -- the series (its first default must be what the kernel did before), while another value, or a changed default, does.
    series_id INTEGER PRIMARY KEY, -- key
    kernel_id INTEGER NOT NULL REFERENCES kernel, -- which kernel
    parameters TEXT NOT NULL CHECK (typeof(parameters) = 'text'), -- canonical JSON without neutral values
    client_node_id INTEGER NOT NULL REFERENCES node, -- from
    server_node_id INTEGER NOT NULL REFERENCES node, -- to
    network TEXT NOT NULL CHECK (typeof(network) = 'text'), -- interface of the plan, else of the client; empty: not known
    toolchain TEXT NOT NULL CHECK (typeof(toolchain) = 'text') -- its name in the cluster's file
);
INSERT INTO "series" VALUES(1,1,'{"message_bytes":65536}',1,2,'eth0','default');
INSERT INTO "series" VALUES(2,2,'{"message_bytes":64}',1,2,'eth0','default');
INSERT INTO "series" VALUES(3,1,'{"message_bytes":65536}',2,1,'eth0','default');
INSERT INTO "series" VALUES(4,2,'{"message_bytes":64}',2,1,'eth0','default');
CREATE TABLE unavailable ( -- one source that could not be read
    unavailable_set_id INTEGER NOT NULL REFERENCES unavailable_set, -- the set
    source TEXT NOT NULL CHECK (typeof(source) = 'text'), -- schedstat, ...
    reason TEXT NOT NULL CHECK (typeof(reason) = 'text'), -- ENOENT, EACCES, ...
    PRIMARY KEY (unavailable_set_id, source)
) WITHOUT ROWID;
INSERT INTO "unavailable" VALUES(1,'schedstat','ENOENT');
CREATE TABLE unavailable_set ( -- sources that could not be read, stored once by content
    unavailable_set_id INTEGER PRIMARY KEY, -- key
    sha256 BLOB NOT NULL UNIQUE CHECK (typeof(sha256) = 'blob') -- of the canonical JSON
);
INSERT INTO "unavailable_set" VALUES(1,X'0AF24B0F29B24AE71D9ECEBFB4E5B6457735C121B328D92010E91B86AC603F5F');
CREATE TABLE unit ( -- every unit that a value here can have
    name TEXT PRIMARY KEY NOT NULL CHECK (typeof(name) = 'text'), -- as it ends the names: bytes, bps, ns, ...
    help TEXT NOT NULL CHECK (typeof(help) = 'text') -- what one of it is
) WITHOUT ROWID;
INSERT INTO "unit" VALUES('bps','bits a second');
INSERT INTO "unit" VALUES('bytes','bytes');
INSERT INTO "unit" VALUES('count','how many');
INSERT INTO "unit" VALUES('index','a number from 0');
INSERT INTO "unit" VALUES('ms','milliseconds');
INSERT INTO "unit" VALUES('no','a number from 1');
INSERT INTO "unit" VALUES('ns','nanoseconds');
INSERT INTO "unit" VALUES('number','no unit in its name');
INSERT INTO "unit" VALUES('pps','packets a second');
INSERT INTO "unit" VALUES('ratio','a share, 0 to 1');
INSERT INTO "unit" VALUES('s','seconds');
INSERT INTO "unit" VALUES('us','microseconds');
INSERT INTO "unit" VALUES('utc','a moment, ISO 8601 with Z');
CREATE TABLE unplanned_pair ( -- pairs that the campaign wants and the plan had to leave out
    run_cluster_id INTEGER NOT NULL REFERENCES run_cluster, -- the plan
    client TEXT NOT NULL CHECK (typeof(client) = 'text'), -- name of the node; it may not exist
    server TEXT NOT NULL CHECK (typeof(server) = 'text'), -- name of the node; it may not exist
    reason TEXT NOT NULL CHECK (typeof(reason) = 'text'), -- why it cannot run
    PRIMARY KEY (run_cluster_id, client, server)
) WITHOUT ROWID;
INSERT INTO "unplanned_pair" VALUES(1,'n1','n9','n9: state drained');
CREATE TABLE warning ( -- what a kernel, or loading, found worth saying about a result
    result_id INTEGER NOT NULL REFERENCES result, -- of which result
    warning_no INTEGER NOT NULL CHECK (typeof(warning_no) = 'integer'), -- from 1
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- one word: buffer_clipped, ...
    message TEXT NOT NULL CHECK (typeof(message) = 'text'), -- for people
    PRIMARY KEY (result_id, warning_no)
) WITHOUT ROWID;
CREATE TRIGGER node_renamed AFTER UPDATE OF name ON node WHEN old.name <> new.name
BEGIN
    INSERT OR REPLACE INTO node_alias (cluster_id, name, node_id) VALUES (old.cluster_id, old.name, old.node_id);
END;
CREATE UNIQUE INDEX series_identity ON series (client_node_id, server_node_id, kernel_id, parameters, network, toolchain);
CREATE UNIQUE INDEX result_identity ON result (job_id, test_no, repetition_no, attempt_id);
CREATE UNIQUE INDEX result_final ON result (job_id, test_no, repetition_no) WHERE final = 1;
CREATE INDEX result_of_series ON result (series_id, started_utc);
CREATE INDEX result_of_attempt ON result (attempt_id);
CREATE INDEX result_of_time ON result (started_utc, series_id, job_id) WHERE final = 1 AND outcome = 'measured';
CREATE INDEX event_of_time ON event (started_utc);
CREATE INDEX rollup_of_time ON rollup (started_utc);
CREATE VIEW v_pairs AS -- every job with its names
SELECT j.job_id, j.run_cluster_id, r.run_id, r.name AS run, ca.name AS campaign, cl.name AS cluster, j.name AS job,
       nc.name AS client, ns.name AS server, j.client_node_id, j.server_node_id, r.created_utc AS run_created_utc,
       CASE WHEN nc.cluster_id = ns.cluster_id THEN 'cluster' ELSE 'link' END AS placement
FROM job j
JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id
JOIN run r ON r.run_id = rc.run_id
JOIN campaign ca ON ca.campaign_id = r.campaign_id
JOIN cluster cl ON cl.cluster_id = rc.cluster_id
JOIN node nc ON nc.node_id = j.client_node_id
JOIN node ns ON ns.node_id = j.server_node_id;
CREATE VIEW v_all_results AS -- every row of result with its names: tries that do not count and retracted ones too
SELECT x.result_id, p.run, p.campaign, p.cluster, k.name AS kernel, p.client, p.server, ps.size_bytes,
       x.test_no, x.repetition_no, x.outcome, mn.name AS metric, m.value, mn.unit, x.reason, x.started_utc,
       x.duration_ns, x.exit_code, x.disturbed, x.crossed_interface, se.network, se.toolchain, x.series_id,
       p.job, a.attempt_no, x.final, t.reason AS retracted, ps.json AS parameters, f.path AS raw_file, x.build_id,
       p.placement
FROM result x
JOIN v_pairs p ON p.job_id = x.job_id
JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id
JOIN kernel k ON k.kernel_id = ps.kernel_id
JOIN series se ON se.series_id = x.series_id
LEFT JOIN attempt a ON a.attempt_id = x.attempt_id
LEFT JOIN metric_name mn ON mn.metric_name_id = k.main_metric_name_id
LEFT JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = k.main_metric_name_id
LEFT JOIN retraction t ON t.result_id = x.result_id
LEFT JOIN ingest_file f ON f.ingest_file_id = x.ingest_file_id;
CREATE VIEW v_results AS -- reads like a spreadsheet: one row a planned repetition, its main metric beside it
SELECT result_id, run, campaign, cluster, kernel, client, server, size_bytes, repetition_no, outcome, metric, value, unit,
       reason, started_utc, disturbed, crossed_interface, network, toolchain, series_id, job, attempt_no, parameters, raw_file,
       placement
FROM v_all_results
WHERE final = 1 AND retracted IS NULL;
CREATE VIEW v_metrics AS -- every metric of every measured result that counts
SELECT x.result_id, p.run, p.campaign, p.cluster, k.name AS kernel, p.client, p.server, ps.size_bytes, x.repetition_no,
       x.started_utc, mn.name AS metric, m.value, mn.unit, mn.better, x.series_id, x.disturbed
FROM result x
JOIN v_pairs p ON p.job_id = x.job_id
JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id
JOIN kernel k ON k.kernel_id = ps.kernel_id
JOIN metric m ON m.result_id = x.result_id
JOIN metric_name mn ON mn.metric_name_id = m.metric_name_id
LEFT JOIN retraction t ON t.result_id = x.result_id
WHERE x.outcome = 'measured' AND x.final = 1 AND t.result_id IS NULL;
CREATE VIEW v_not_measured AS -- what was planned and is not there, with the reason
SELECT run, campaign, cluster, kernel, client, server, size_bytes, repetition_no, outcome, reason, exit_code, job, attempt_no,
       result_id, raw_file
FROM v_all_results
WHERE final = 1 AND outcome <> 'measured';
CREATE VIEW v_not_planned AS -- pairs and nodes that the plan left out, with the reason
SELECT r.name AS run, c.name AS cluster, u.client, u.server, u.reason
FROM unplanned_pair u
JOIN run_cluster rc ON rc.run_cluster_id = u.run_cluster_id
JOIN run r ON r.run_id = rc.run_id
JOIN cluster c ON c.cluster_id = rc.cluster_id
UNION ALL
SELECT r.name, c.name, n.name, NULL, rn.note
FROM run_node rn
JOIN node n ON n.node_id = rn.node_id
JOIN run_cluster rc ON rc.run_cluster_id = rn.run_cluster_id
JOIN run r ON r.run_id = rc.run_id
JOIN cluster c ON c.cluster_id = rc.cluster_id
WHERE rn.planned = 'excluded';
CREATE VIEW v_attempts AS -- every submission and how it ended
SELECT p.run, p.campaign, p.cluster, p.job, a.attempt_no, p.client, p.server, a.native_id, a.state, a.outcome, a.reason,
       a.exit_code, a.nodes, a.committed_utc, a.submitted_utc, a.started_utc, a.ended_utc, a.tag, a.attempt_id
FROM attempt a
JOIN v_pairs p ON p.job_id = a.job_id;
CREATE VIEW v_links AS -- each side of each attempt over a link: where it ran and listened, whether it could connect, how it ended
SELECT p.run, p.cluster AS link, p.job, a.attempt_no, e.side, c.name AS cluster, n.name AS node, e.role, e.reaches, e.address,
       e.port, e.native_id, e.outcome, e.reason, e.expected_wait_s, e.submitted_utc, e.started_utc, e.ended_utc, e.tag,
       e.attempt_id
FROM link_end e
JOIN attempt a ON a.attempt_id = e.attempt_id
JOIN v_pairs p ON p.job_id = a.job_id
JOIN node n ON n.node_id = e.node_id
JOIN cluster c ON c.cluster_id = n.cluster_id;
CREATE VIEW v_parameters AS -- every parameter of every result, by name
SELECT x.result_id, o.name AS parameter, q.value, o.unit
FROM result x
JOIN parameter q ON q.parameter_set_id = x.parameter_set_id
JOIN option o ON o.option_id = q.option_id;
CREATE VIEW v_granted AS -- what the system granted to each result
SELECT x.result_id, g.name AS granted, g.value
FROM result x
JOIN granted g ON g.granted_set_id = x.granted_set_id;
CREATE VIEW v_counters AS -- one row a result, end and counter: which node, which counter, how far it moved
SELECT e.result_id, p.run, p.cluster, x.started_utc, CASE e.end_index WHEN 0 THEN 'client' ELSE 'server' END AS "end",
       CASE e.end_index WHEN 0 THEN p.client ELSE p.server END AS node, c.source, c.name AS counter, e.delta, c.unit
FROM evidence e
JOIN counter c ON c.counter_id = e.counter_id
JOIN result x ON x.result_id = e.result_id
JOIN v_pairs p ON p.job_id = x.job_id;
CREATE VIEW v_evidence AS -- one row a result and counter: both ends side by side; NULL: did not move
SELECT e.result_id, c.name AS counter, max(CASE e.end_index WHEN 0 THEN e.delta END) AS client_delta,
       max(CASE e.end_index WHEN 1 THEN e.delta END) AS server_delta, c.unit
FROM evidence e
JOIN counter c ON c.counter_id = e.counter_id
GROUP BY e.result_id, e.counter_id;
CREATE VIEW v_gauges AS -- one row a result, end and gauge
SELECT g.result_id, CASE g.end_index WHEN 0 THEN 'client' ELSE 'server' END AS "end", c.name AS gauge, g.before, g.after, c.unit
FROM gauge g
JOIN counter c ON c.counter_id = g.counter_id;
CREATE VIEW v_ends AS -- where each end of a result ran, and when its snapshots were taken
SELECT e.result_id, CASE e.end_index WHEN 0 THEN 'client' ELSE 'server' END AS "end", n.name AS node, d.host_name, d.interface,
       d.address, b.boot_id, e.pid, e.cpu_index, e.before_utc, e.after_utc, e.interval_ns, e.before_cost_ns, e.after_cost_ns
FROM evidence_end e
JOIN endpoint d ON d.endpoint_id = e.endpoint_id
JOIN node n ON n.node_id = d.node_id
LEFT JOIN node_boot b ON b.node_boot_id = e.node_boot_id;
CREATE VIEW v_unavailable AS -- sources of evidence that could not be read
SELECT e.result_id, CASE e.end_index WHEN 0 THEN 'client' ELSE 'server' END AS "end", u.source, u.reason
FROM evidence_end e
JOIN unavailable u ON u.unavailable_set_id = e.unavailable_set_id;
CREATE VIEW v_facts AS -- every fact of every node and attempt
SELECT p.run, p.cluster, n.name AS node, p.job, a.attempt_no, a.started_utc, f.name AS fact, f.value, nf.attempt_id, nf.node_id
FROM node_facts nf
JOIN attempt a ON a.attempt_id = nf.attempt_id
JOIN v_pairs p ON p.job_id = a.job_id
JOIN node n ON n.node_id = nf.node_id
JOIN fact_set_part sp ON sp.fact_set_id = nf.fact_set_id
JOIN fact f ON f.fact_part_id = sp.fact_part_id;
CREATE VIEW v_builds AS -- what was built where, and how many results it brought
SELECT c.name AS cluster, b.toolchain, b.program, b.version, b.source_build_id, b.compiler, b.flags, b.mpi, b.modules,
       b.binary_sha256, b.built_utc, b.build_id,
       (SELECT count(*) FROM result x WHERE x.build_id = b.build_id) AS result_count
FROM build b
JOIN cluster c ON c.cluster_id = b.cluster_id;
CREATE VIEW v_series AS -- every series with its names
SELECT s.series_id, k.name AS kernel, cc.name AS client_cluster, nc.name AS client, cs.name AS server_cluster,
       ns.name AS server, s.network, s.toolchain, s.parameters,
       CASE WHEN nc.cluster_id = ns.cluster_id THEN 'cluster' ELSE 'link' END AS placement
FROM series s
JOIN kernel k ON k.kernel_id = s.kernel_id
JOIN node nc ON nc.node_id = s.client_node_id
JOIN cluster cc ON cc.cluster_id = nc.cluster_id
JOIN node ns ON ns.node_id = s.server_node_id
JOIN cluster cs ON cs.cluster_id = ns.cluster_id;
CREATE VIEW v_findings AS -- what the rules found in the evidence of results that count
SELECT v.result_id, v.run, v.cluster, v.kernel, v.client, v.server, v.started_utc, ru.name AS rule,
       CASE f.end_index WHEN 0 THEN 'client' WHEN 1 THEN 'server' END AS "end",
       CASE WHEN instr(f.figures, '"role":"sender"') > 0 THEN 'sender' WHEN instr(f.figures, '"role":"receiver"') > 0 THEN 'receiver'
            WHEN instr(f.figures, '"role":"both"') > 0 THEN 'both' END AS role,
       CASE f.end_index WHEN 0 THEN v.client WHEN 1 THEN v.server END AS node,
       f.message, ru.meaning, ru.advice, f.figures, v.outcome
FROM result_finding f
JOIN rule ru ON ru.rule_id = f.rule_id
JOIN v_all_results v ON v.result_id = f.result_id
WHERE v.final = 1 AND v.retracted IS NULL;
CREATE VIEW v_runs AS -- every run and cluster: planned against what is there
SELECT r.name AS run, ca.name AS campaign, cl.name AS cluster, r.created_utc, rc.opened_utc, rc.closed_utc,
       rc.result_count AS planned_count,
       (SELECT count(*) FROM result x JOIN job j ON j.job_id = x.job_id
        WHERE j.run_cluster_id = rc.run_cluster_id AND x.final = 1 AND x.outcome = 'measured') AS measured_count,
       (SELECT count(*) FROM result x JOIN job j ON j.job_id = x.job_id
        WHERE j.run_cluster_id = rc.run_cluster_id AND x.final = 1 AND x.outcome = 'invalid') AS invalid_count,
       (SELECT count(*) FROM result x JOIN job j ON j.job_id = x.job_id
        WHERE j.run_cluster_id = rc.run_cluster_id AND x.final = 1 AND x.outcome = 'failed') AS failed_count,
       (SELECT count(*) FROM result x JOIN job j ON j.job_id = x.job_id
        WHERE j.run_cluster_id = rc.run_cluster_id AND x.final = 1 AND x.outcome = 'not_measured') AS not_measured_count,
       rc.loaded_utc, r.hpcq_version, r.seed, rc.run_cluster_id
FROM run_cluster rc
JOIN run r ON r.run_id = rc.run_id
JOIN campaign ca ON ca.campaign_id = r.campaign_id
JOIN cluster cl ON cl.cluster_id = rc.cluster_id;
CREATE VIEW v_history AS -- every value of every series that counts; a pruned job is one row that stands for value_count
SELECT x.series_id, mn.name AS metric, p.run, p.cluster, k.name AS kernel, p.client, p.server, x.started_utc, m.value,
       1 AS value_count, m.value AS low, m.value AS high, mn.unit, mn.better, x.disturbed, x.result_id, p.job
FROM result x
JOIN metric m ON m.result_id = x.result_id
JOIN metric_name mn ON mn.metric_name_id = m.metric_name_id
JOIN kernel k ON k.kernel_id = mn.kernel_id
JOIN v_pairs p ON p.job_id = x.job_id
LEFT JOIN retraction t ON t.result_id = x.result_id
WHERE x.outcome = 'measured' AND x.final = 1 AND t.result_id IS NULL
UNION ALL
SELECT u.series_id, mn.name, p.run, p.cluster, k.name, p.client, p.server, u.started_utc, u.median,
       u.value_count, u.low, u.high, mn.unit, mn.better, x.disturbed, u.result_id, p.job
FROM rollup u
JOIN result x ON x.result_id = u.result_id
JOIN metric_name mn ON mn.metric_name_id = u.metric_name_id
JOIN kernel k ON k.kernel_id = mn.kernel_id
JOIN v_pairs p ON p.job_id = u.job_id;
CREATE VIEW v_groups AS -- the group of each node now, by kind
SELECT c.name AS cluster, n.name AS node, g.kind, g.name AS "group", g.since_utc, g.node_id
FROM node_group g
JOIN node n ON n.node_id = g.node_id
JOIN cluster c ON c.cluster_id = n.cluster_id
WHERE g.since_utc = (SELECT max(o.since_utc) FROM node_group o WHERE o.node_id = g.node_id AND o.kind = g.kind);
CREATE VIEW v_events AS -- maintenance, drains, remarks, and every boot that measurements saw
SELECT e.event_id, e.kind, e.started_utc, e.ended_utc, c.name AS cluster, n.name AS node, r.name AS run, e.series_id,
       e.result_id, e.note, e.who, e.recorded_utc
FROM event e
LEFT JOIN cluster c ON c.cluster_id = e.cluster_id
LEFT JOIN node n ON n.node_id = e.node_id
LEFT JOIN run r ON r.run_id = e.run_id
UNION ALL
SELECT NULL, 'reboot', b.first_seen_utc, NULL, c.name, n.name, NULL, NULL, NULL, 'first seen with boot id ' || b.boot_id,
       'evidence', b.first_seen_utc
FROM node_boot b
JOIN node n ON n.node_id = b.node_id
JOIN cluster c ON c.cluster_id = n.cluster_id
WHERE EXISTS (SELECT 1 FROM node_boot o WHERE o.node_id = b.node_id AND o.first_seen_utc < b.first_seen_utc);
CREATE VIEW v_retractions AS -- results that a person declared bad, and those where that was taken back
SELECT t.result_id, v.run, v.cluster, v.kernel, v.client, v.server, v.value, v.unit, t.retracted_utc, t.who AS retracted_by,
       t.reason, NULL AS withdrawn_utc, NULL AS withdrawn_by, NULL AS why
FROM retraction t
JOIN v_all_results v ON v.result_id = t.result_id
UNION ALL
SELECT w.result_id, v.run, v.cluster, v.kernel, v.client, v.server, v.value, v.unit, w.retracted_utc, w.retracted_by,
       w.reason, w.withdrawn_utc, w.who, w.why
FROM retraction_withdrawn w
JOIN v_all_results v ON v.result_id = w.result_id;
CREATE VIEW v_baselines AS -- the runs of each baseline; holds = 1: of those of its name the one that counts
SELECT b.name AS baseline, r.name AS run, b.set_utc, b.who, b.why,
       b.set_utc = (SELECT max(o.set_utc) FROM baseline o WHERE o.name = b.name) AS holds, b.baseline_id, r.run_id
FROM baseline b
JOIN baseline_run br ON br.baseline_id = b.baseline_id
JOIN run r ON r.run_id = br.run_id;
CREATE VIEW v_changes AS -- recorded changes of level with what people decided about them
SELECT h.change_id, coalesce(s.state, 'open') AS state, h.direction, h.at_utc, v.kernel, v.client_cluster AS cluster, v.client,
       v.server, v.parameters, mn.name AS metric, h.before, h.after, mn.unit, h.ratio, h.low, h.high, h.before_count,
       h.after_count, h.own_build, h.cause, h.method, s.who, s.why, s.set_utc, h.found_utc, h.series_id
FROM change h
JOIN v_series v ON v.series_id = h.series_id
JOIN metric_name mn ON mn.metric_name_id = h.metric_name_id
LEFT JOIN change_state s ON s.change_id = h.change_id
    AND s.state_no = (SELECT max(o.state_no) FROM change_state o WHERE o.change_id = h.change_id);
CREATE VIEW v_acceptances AS -- every verdict that an acceptance gave of a node
SELECT c.name AS cluster, n.name AS node, a.verdict, a.reason, a.decided_utc, r.name AS run, b.name AS baseline, o.boot_id,
       a.acceptance_id, a.node_id
FROM acceptance a
JOIN node n ON n.node_id = a.node_id
JOIN cluster c ON c.cluster_id = n.cluster_id
LEFT JOIN node_boot o ON o.node_boot_id = a.node_boot_id
LEFT JOIN run r ON r.run_id = a.run_id
LEFT JOIN baseline b ON b.baseline_id = a.baseline_id;
CREATE VIEW v_nodes AS -- the ledger: each node with its last boot and its last acceptance
SELECT c.name AS cluster, n.name AS node,
       (SELECT b.boot_id FROM node_boot b WHERE b.node_id = n.node_id ORDER BY b.last_seen_utc DESC LIMIT 1) AS boot_id,
       (SELECT max(b.last_seen_utc) FROM node_boot b WHERE b.node_id = n.node_id) AS last_measured_utc,
       a.verdict, a.reason, a.decided_utc, a.boot_id AS accepted_boot_id, a.run, n.node_id
FROM node n
JOIN cluster c ON c.cluster_id = n.cluster_id
LEFT JOIN v_acceptances a ON a.node_id = n.node_id
    AND a.decided_utc = (SELECT max(o.decided_utc) FROM acceptance o WHERE o.node_id = n.node_id);
COMMIT;
