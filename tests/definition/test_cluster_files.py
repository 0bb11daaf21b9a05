"""Cluster files: what is read from them, and every complaint with its exact words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Budget, Connection, Mpi, Ports
from hpcq.errors import UserError
from tests.definition.definition_texts import GOOD, SLURM, TESTS, cluster_says, here, read, read_alpha

FIXTURES = (here,)  # pytest looks for them in this module
pytestmark = pytest.mark.fast


def test_lab_cluster(here: Path) -> None:
    cluster = read_alpha(
        "{name: alpha, scheduler: slurm, connection: {ssh: alpha-head, ssh_config: /run/hpcq-lab/x/ssh_config}, "
        "partition: main, account: lab, interface: eth0, ports: 20000-20999, work_directory: /work,"
        " mpi: {compiler: mpicc, launch: srun --mpi=pmix}, environment: {OMPI_MCA_mpi_yield_when_idle: 1}}"
    )
    assert cluster.connection == Connection("alpha-head", "/run/hpcq-lab/x/ssh_config")
    assert not cluster.connection.here
    assert cluster.mpi == Mpi("mpicc", ("srun", "--mpi=pmix"))
    assert (cluster.ports, str(cluster.ports)) == (Ports(20000, 20999), "20000-20999")
    assert cluster.environment == {"OMPI_MCA_mpi_yield_when_idle": "1"}
    assert (cluster.nodes, cluster.qos, cluster.launcher) == ((), None, None)
    assert (cluster.max_wait_s, cluster.poll_interval_s) == (600.0, 5.0)


def test_local_cluster(here: Path) -> None:
    cluster = read_alpha("{name: alpha, scheduler: local, nodes: 3, mpi: {}}")
    assert cluster.nodes == ("local-1", "local-2", "local-3")
    assert (cluster.interface, cluster.connection.here, cluster.work_directory) == ("lo", True, None)
    assert cluster.mpi == Mpi("mpicc", ("mpirun", "-np", "2"))
    assert read_alpha("{name: alpha, scheduler: local, connection: local, nodes: [x, y]}").nodes == ("x", "y")


def test_environment_is_taken_as_written(here: Path) -> None:
    cluster = read_alpha(SLURM + "environment: {A: 08, B: 1.10, C: true, D: 0x1F, E: 'x', F: no, G: 1_000}\n")
    assert cluster.environment == {"A": "08", "B": "1.10", "C": "true", "D": "0x1F", "E": "x", "F": "no", "G": "1_000"}


def test_hostile_texts_survive(here: Path) -> None:
    value = "a b'c\"d $(touch /tmp/x) `id`\n;|&\\ é"
    cluster = read_alpha(
        SLURM
        + f"environment: {{A: {json.dumps(value)}}}\n"
        + 'work_directory: "/data/a b\'c$(id)"\n'
        + 'extra_directives: ["--comment=it\'s $(id)"]\n'
        + 'modules: "x; rm -rf /"\nmpi: {launch: "srun --mpi=\'pmix x\' $(id)"}\n'
    )
    assert cluster.environment == {"A": value}
    assert cluster.work_directory == "/data/a b'c$(id)"
    assert cluster.extra_directives == ("--comment=it's $(id)",)
    assert cluster.modules == ("x; rm -rf /",)
    assert cluster.mpi is not None
    assert cluster.mpi.launch == ("srun", "--mpi=pmix x", "$(id)")


@pytest.mark.promise("The tightest of two limits counts.")
def test_budget_of_both_files(here: Path) -> None:
    campaign = read(GOOD + TESTS + "budget: {max_nodes: 4, max_node_ratio: 0.5}\n")
    cluster = read_alpha(SLURM + "budget: {max_jobs: 100, max_nodes: 8, max_node_ratio: 0.25}\n")
    assert campaign.budget_on(cluster) == Budget(100, 4, 0.25, None)
    assert campaign.budget_on(read_alpha(SLURM)) == Budget(32, 4, 0.5, None)
    assert read(GOOD + TESTS).budget_on(cluster) == cluster.budget


# -- complaints ----------------------------------------------------------------------------------------------------------


SLURM_KEYS = (
    "partition, account, qos, reservation, constraint, memory, exclusive, leave_out, extra_directives, instance, launcher"
)
SHARED = "jobs of others would run on the same nodes, so nothing could be measured"
ELSEWHERE = "the job would run where hpcq does not look for it: describe that cluster in a file of its own"


@pytest.mark.promise("A word that a PBS key does not take is refused before anything runs.")
def test_a_key_with_few_words_names_them(here: Path) -> None:
    found = cluster_says("name: alpha\nscheduler: pbs\ninterface: eth0\ntask_starter: ssh\n")
    assert "task_starter: 'ssh': must be one of pbs_tmrsh, pbsdsh" in "\n".join(found)


@pytest.mark.promise("A key that a scheduler does not have is an error that names the keys it has.")
@pytest.mark.parametrize(
    ("key", "who"),
    [
        ("partition: p", "slurm has"),
        ("qos: normal", "slurm has"),
        ("place: excl", "pbs has"),
        ("launcher: ssh {node}", "slurm, pbs and torque have"),
        ("extra_directives: [--x]", "slurm, pbs and torque have"),
    ],
)
def test_a_key_of_another_scheduler_names_the_keys_that_there_are(here: Path, key: str, who: str) -> None:
    found = cluster_says(f"name: alpha\nscheduler: local\n{key}\n")
    name = key.partition(":")[0]
    assert f"{name}: scheduler local has no such key, {who}: the keys that local has are nodes" in "\n".join(found)


def test_several_partitions_are_one_word_or_a_list(here: Path) -> None:
    for text in ("[a, b]", "'a,b'"):
        assert read_alpha(SLURM + f"partition: {text}\n").partition == "a,b"
    assert read_alpha(SLURM + "instance: {SLURM_CONF: /etc/b/slurm.conf}\n").instance == {"SLURM_CONF": "/etc/b/slurm.conf"}


@pytest.mark.promise("An option that Slurm takes as one of several refused ones (`--cluster=b`) is refused.")
@pytest.mark.promise("Options that put jobs of others on the same nodes, or shorten the time limit, are refused.")
@pytest.mark.promise("Options that would lose the job (`--clusters`, `--wait`, `--hold`) are refused.")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("partitions: a", "partitions: not a key here: the nearest is partition"),
        ("nodes: 2",
         f"nodes: scheduler slurm has no such key, local has: the keys that slurm has are {SLURM_KEYS}"),
        ("instance: {SLURM_JWT: x}", "SLURM_JWT: must be one of SLURM_CONF, SLURM_CONF_SERVER"),
        ("extra_directives: [--clusters=b]", f"extra_directives: '--clusters=b': {ELSEWHERE}"),
        ("extra_directives: [-Mb]", f"extra_directives: '-Mb': {ELSEWHERE}"),
        ("extra_directives: [--clusters b]", f"extra_directives: '--clusters b': {ELSEWHERE}"),
        ("extra_directives: [--cluster=b]", f"extra_directives: '--cluster=b': {ELSEWHERE}"),
        ("extra_directives: [--oversub]", f"extra_directives: '--oversub': {SHARED}"),
        ("extra_directives: [-s]", f"extra_directives: '-s': {SHARED}"),
        ("extra_directives: [--time-min=1]",
         "extra_directives: '--time-min=1': the scheduler would shorten the time limit, and end the job amid its tests"),
        ("extra_directives: [--wait]",
         "extra_directives: '--wait': the submit command would wait for the job, and hpcq for the command"),
        ("extra_directives: [-H]", "extra_directives: '-H': a held job never starts: hpcq would wait for it in vain"),
        ("extra_directives: [--parti=b]", "extra_directives: '--parti=b': the key partition of this file says it"),
        ("partition: [a, 'b,c']", "partition: a list: must be one word, or a list of words"),
        ("partition: 'a,,b'", "partition: 'a,,b': must be one word, or words joined by commas, none of them empty"),
        ("poll_interval_s: 100ms",
         "poll_interval_s: 0.1 s is below the minimum 1 s: hpcq asks a batch system at most once per second"),
        ("max_wait_s: -1", "max_wait_s: -1 is below the minimum 0"),
        ("ports: 20000", "ports: 20000: must be FIRST-LAST within 1024-65535, like 20000-20999"),
        ("ports: 80-90", "ports: '80-90': must be FIRST-LAST within 1024-65535, like 20000-20999"),
        ("ports: 3000-2000", "ports: '3000-2000': must be FIRST-LAST within 1024-65535, like 20000-20999"),
        ("connection: there", "connection: 'there': must be local or {ssh: HOST, ssh_config: FILE}"),
        ("connection: {}", "connection: keys with values: must be local or {ssh: HOST, ssh_config: FILE}"),
        ("work_directory: work", "work_directory: 'work': must be a folder on the cluster written out from / on"),
        ('work_directory: "/a\\nb"', "work_directory: '/a\\nb' holds the control character '\\n': must be one line of text"),
        ("environment: {A B: 1}",
         "environment: 'A B' is not a variable's name: must be letters, digits and _, no digit first"),
        ("environment: {A: [1]}", "A: a list: must be a text"),
        ("environment: {A: }", "A: nothing: must be a text"),
        ('environment: {A: "\\0"}', "A: '\\x00' holds a NUL byte: must be any other text"),
        ('extra_directives: ["--comment=a\\n#SBATCH --wrap=x"]',
         "extra_directives: '--comment=a\\n#SBATCH --wrap=x' holds the control character '\\n': must be one line of text"),
        ('extra_directives: ["--comment=a\\0"]',
         "extra_directives: '--comment=a\\x00' holds the control character '\\x00': must be one line of text"),
        ("extra_directives: ['#SBATCH --x']",
         "extra_directives: '#SBATCH --x': write the option alone, like --licenses=fs, without the # word before it"),
        ("extra_directives: [licenses=fs]",
         "extra_directives: 'licenses=fs': must be an option of the submit command, like --licenses=fs"),
        ("extra_directives: [--time=5]", "extra_directives: '--time=5': hpcq sets --time itself for every job"),
        ("extra_directives: [--account x]", "extra_directives: '--account x': the key account of this file says it"),
        ("launcher: ssh", "launcher: 'ssh' does not say which node: write {node} where its name belongs"),
        ("launcher: \"ssh 'x\"",
         "launcher: \"ssh 'x\": No closing quotation: must be words as a shell would read them, or a list of words"),
        ("launcher: ssh {node} {rank}", "launcher: {rank} means nothing here: must be one of {node}"),
        ("mpi: {launch: 'mpirun -H {node}'}",
         "launch: {node} means nothing here: must be one of {count}, {nodes}, {hostfile}, {client}, {server}"),
        ("mpi: {launch: []}", "launch: 0 given: at least 1 needed"),
        ("mpi: mpicc", "mpi: 'mpicc': must be keys with values"),
        ("account: it's", "account: \"it's\": must be letters, digits and ._@+:,/%=- (no spaces, quotes or shell signs)"),
        ("account: -x", "account: '-x': must be letters, digits and ._@+:,/%=- (no spaces, quotes or shell signs)"),
        ("modules: [1]", "modules: 1: must be a text (in quotes)"),
        ("budget: 3", "budget: 3: must be keys with values"),
    ],
)  # fmt: skip
def test_refused_keys_of_a_cluster(here: Path, line: str, message: str) -> None:
    assert cluster_says(SLURM + line + "\n") == [f"alpha.yaml:4: {message}"]


@pytest.mark.promise(
    "What a job script of hpcq says by `-l` or `-W` itself is refused in PBS's `extra_directives` by its name."
)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("extra_directives: [-l select=2]", "extra_directives: '-l select=2': the key select of this file says it"),
        ("extra_directives: [-lplace=free]", "extra_directives: '-lplace=free': the key place of this file says it"),
        ("extra_directives: ['-l mem=1gb,walltime=9']",
         "extra_directives: '-l mem=1gb,walltime=9': hpcq sets the walltime of every job"),
        ("extra_directives: [-W block=true]",
         "extra_directives: '-W block=true': qsub would wait for the job, and hpcq for qsub"),
        ("extra_directives: [-Wumask=022]",
         "extra_directives: '-Wumask=022': hpcq keeps what its jobs write to their user"),
        ("extra_directives: ['-l filesystems=home:eagle']",
         ("extra_directives: '-l filesystems=home:eagle': the key resources of this file says it,"
         " like resources: filesystems=home:eagle")),
        ("resources: select=2", "resources: 'select=2': select is the key select of this file"),
        ("resources: [storage=a+b, ncpus=4]",
         "resources: 'ncpus=4': ncpus belongs to each chunk: the key select of this file"),
        ("resources: eagle", "resources: 'eagle': must be a resource and its value, like filesystems=home:eagle"),
    ],
)  # fmt: skip
def test_refused_directives_and_resources_of_pbs(here: Path, line: str, message: str) -> None:
    assert cluster_says(f"name: alpha\nscheduler: pbs\ninterface: eth0\n{line}\n") == [f"alpha.yaml:4: {message}"]


def test_options_of_pbs_that_hpcq_does_not_set_are_taken(here: Path) -> None:
    text = "name: alpha\nscheduler: pbs\ninterface: eth0\nextra_directives: [-W group_list=wheel, -m n, -p 3]\n"
    cluster = read_alpha(f"{text}resources: [filesystems=home:eagle, storage=gdata/ab1+scratch/ab1]\n")
    assert cluster.extra_directives == ("-W group_list=wheel", "-m n", "-p 3")
    assert cluster.extra == {"resources": "filesystems=home:eagle,storage=gdata/ab1+scratch/ab1"}


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("{}", ["name: missing: this key is required", "scheduler: missing: this key is required"]),
        ("{name: beta, scheduler: local}", ["name: 'beta', but the file is alpha.yaml: it must be called beta.yaml"]),
        ("{name: alpha, scheduler: lsf}", ["scheduler: 'lsf': must be 'slurm', 'pbs', 'torque' or 'local'"]),
        ("{name: alpha, scheduler: slurm}", ["interface: missing: name the network interface to measure, like eth0 or ib0"]),
        ("{name: alpha, scheduler: slurm, interface: 'eth0; id'}",
         ["interface: 'eth0; id' is not an interface: must be a name like eth0, ib0, bond0.7, at most 15 characters"]),
        ("{name: alpha, scheduler: slurm, interface: eth0, connection: {ssh: h}}",
         ["work_directory: missing: with connection ssh, name a folder there that all nodes see"]),
        ("{name: alpha, scheduler: slurm, interface: eth0, work_directory: /w, connection: {ssh: -oProxyCommand=id}}",
         ["ssh: '-oProxyCommand=id' is not a host: must be a name as in `ssh NAME`, best one of your ssh configuration"]),
        ("{name: alpha, scheduler: slurm, interface: eth0, work_directory: /w, connection: {ssh: h, ssh_config: c}}",
         ["ssh_config: 'c': must be a file on this machine written out from / or ~/ on"]),
        ("{name: alpha, scheduler: local, work_directory: /w, connection: {ssh: h}}",
         ["connection: scheduler local plays nodes on this machine: must be local"]),
        ("{name: alpha, scheduler: local, nodes: 1}", ["nodes: 1: must be 2 to 64 nodes, or a list of names"]),
        ("{name: alpha, scheduler: local, nodes: [a]}", ["nodes: a: at least two different names are needed"]),
        ("{name: alpha, scheduler: local, nodes: [a, a]}", ["nodes: a, a: at least two different names are needed"]),
        ("{name: alpha, scheduler: local, nodes: [a, 'b c']}",
         ["nodes: 'b c' is not a node name: must be letters, digits and ._-"]),
    ],
)  # fmt: skip
def test_refused_clusters(here: Path, text: str, messages: list[str]) -> None:
    assert cluster_says(text + "\n") == [f"alpha.yaml:1: {message}" for message in messages]


@pytest.mark.promise("Options that Slurm takes one of, like --mem-per-cpu and --mem, are refused before anything is submitted.")
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("extra_directives: ['--mem-per-cpu=1G']", "extra_directives: --mem-per-cpu excludes --mem"),
        ("extra_directives: ['--mem-per-cpu=1G']\nmemory: none", ""),
        ("extra_directives: ['--mem=1G']", "the key memory of this file says it"),
        ("extra_directives: ['--exclusive=user']", "the key exclusive of this file says it"),
        ("memory: lots", "memory: 'lots': must be all, none, or a size per node like 3900M"),
        ("exclusive: mine", "must be one of all, user, mcs, topo, none"),
        ("leave_out: [nodelist]", "leave_out: 'nodelist': must be among ntasks-per-node"),
        ("leave_out: [no-requeue, open-mode]\nmemory: 3900M\nexclusive: user", ""),
    ],
)
def test_standing_options_of_slurm(tmp_path: Path, keys: str, said: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"name: c\nscheduler: slurm\ninterface: ib0\nwork_directory: /scratch\n{keys}\n")
    if said:
        with pytest.raises(UserError) as error:
            read_cluster(path)
        assert said in str(error.value.message)
    else:
        assert read_cluster(path).extra
