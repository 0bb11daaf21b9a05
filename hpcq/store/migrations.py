"""How an older results.db becomes a present one.

Each entry is (version it leads to, SQL that changes tables and rows). Order matters, released entries never change. Views
are not touched here: they are made anew from results.db.schema after the last step. No entry may use what SQLite 3.26 lacks.
A table's text is the schema's, so that a database brought forward is the same as a new one; a test compares them.
"""

from __future__ import annotations

_VERSION_2 = """
CREATE INDEX result_of_time ON result (started_utc, series_id, job_id) WHERE final = 1 AND outcome = 'measured';

CREATE TABLE node_group ( -- which leaf switch, rack or other group a node belonged to, and since when that was known
    node_id INTEGER NOT NULL REFERENCES node, -- who
    kind TEXT NOT NULL CHECK (typeof(kind) = 'text'), -- leaf, rack, ...
    since_utc TEXT NOT NULL CHECK (since_utc GLOB '????-??-??T??:??:??*Z'), -- first seen there, UTC; the latest row holds
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- of the group
    PRIMARY KEY (node_id, kind, since_utc)
) WITHOUT ROWID;

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
CREATE INDEX event_of_time ON event (started_utc);

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

CREATE TABLE baseline ( -- what counted as good, by name; setting a name again adds a row, and the latest holds
    baseline_id INTEGER PRIMARY KEY, -- key
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- as people call it
    set_utc TEXT NOT NULL CHECK (set_utc GLOB '????-??-??T??:??:??*Z'), -- when it was set, UTC
    who TEXT NOT NULL CHECK (typeof(who) = 'text'), -- who set it
    why TEXT NOT NULL CHECK (typeof(why) = 'text'), -- and why
    UNIQUE (name, set_utc)
);

CREATE TABLE baseline_run ( -- the runs that make a baseline
    baseline_id INTEGER NOT NULL REFERENCES baseline, -- which baseline
    run_id INTEGER NOT NULL REFERENCES run, -- one of its runs
    PRIMARY KEY (baseline_id, run_id)
) WITHOUT ROWID;

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
CREATE INDEX rollup_of_time ON rollup (started_utc);
"""

_VERSION_3 = """
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
"""

_VERSION_4 = """
CREATE TABLE shared_acceptance ( -- ledger: verdicts on what nodes share: links and groups at fault, and their passing since
    shared_acceptance_id INTEGER PRIMARY KEY, -- key
    cluster_id INTEGER NOT NULL REFERENCES cluster, -- where
    kind TEXT NOT NULL CHECK (kind IN ('link', 'group')), -- group: all nodes behind one leaf switch
    name TEXT NOT NULL CHECK (typeof(name) = 'text'), -- both ends of a link (nodes or leaf switches), or the leaf switch
    run_id INTEGER REFERENCES run, -- the run that it rests on; NULL: there was none
    baseline_id INTEGER REFERENCES baseline, -- what it was held against; NULL: no named baseline
    verdict TEXT NOT NULL CHECK (verdict IN ('pass', 'degraded', 'failed', 'inconclusive', 'not_covered')), -- in a word
    reason TEXT NOT NULL CHECK (typeof(reason) = 'text'), -- in words
    decided_utc TEXT NOT NULL CHECK (decided_utc GLOB '????-??-??T??:??:??*Z'), -- when, UTC
    UNIQUE (cluster_id, kind, name, decided_utc)
);

CREATE TABLE shared_acceptance_node ( -- the nodes that share it: both ends of a link, all nodes of a group
    shared_acceptance_id INTEGER NOT NULL REFERENCES shared_acceptance, -- which verdict
    node_id INTEGER NOT NULL REFERENCES node, -- which node
    PRIMARY KEY (shared_acceptance_id, node_id)
) WITHOUT ROWID;
"""

MIGRATIONS: tuple[tuple[int, str], ...] = ((2, _VERSION_2), (3, _VERSION_3), (4, _VERSION_4))
