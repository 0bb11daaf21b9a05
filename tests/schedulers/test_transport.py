"""Transport: real shells, hostile names, and an ssh that is replaced by a script only to lose connections on demand."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcq.errors import TransportError
from hpcq.scheduler.kinds import commands_environment
from hpcq.transport import Completed, Here, Ssh, Transport, quote, run_here
from tests.kernels.kernel_programs import wait_for

pytestmark = pytest.mark.fast

HOSTILE = [
    "plain",
    "two words",
    "quo'te",
    'dou"ble',
    "$(touch pwned)",
    "`touch pwned`",
    "a;b",
    "-rf",
    "*",
    "new\nline",
    "ümlaut",
    "\\",
]


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ssh:
    """Ssh over a stand-in for the ssh program that runs the remote command here, through csh-like noise on stdout."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\nfor w in "$@"; do [ "$w" = -G ] && { echo "controlpath none"; exit 0; }; last=$w; done\n'
        'if [ -e "$SSH_CUT" ]; then echo "Connection closed" >&2; exit 255; fi\n'
        'echo "welcome to the noisy profile"\nexec /bin/sh -c "$last"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SSH_CUT", str(tmp_path / "cut"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return Ssh("head", None, commands_environment("slurm", {}))


@pytest.fixture(params=["here", "ssh"])
def transport(request: pytest.FixtureRequest) -> Transport:
    return Here(commands_environment("slurm", {})) if request.param == "here" else request.getfixturevalue("ssh")


def test_exit_code_output_and_input(transport: Transport) -> None:
    done = transport.sh("cat; echo err >&2; exit 7", stdin=b"in\x00put\xff")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (7, b"in\x00put\xff", "err")


def test_a_long_script_is_no_problem(transport: Transport) -> None:
    script = "\n".join(f"x{number}={'y' * 50}" for number in range(10_000)) + "\necho $x9999"
    assert transport.sh(script).text.strip() == "y" * 50


@pytest.mark.promise("File names with any characters are copied correctly in both directions.")
@pytest.mark.heavy
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_travel_both_ways(transport: Transport, tmp_path: Path, name: str) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    (source / name).mkdir(parents=True)
    (source / name / "file").write_text("content")
    (source / name / "file").chmod(0o600)
    there = str(tmp_path / f"there {name}")
    transport.push(source, there)
    pushed = Path(there) / name / "file"
    assert pushed.read_text() == "content"
    assert pushed.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "pwned").exists()
    if "\n" not in name:  # a list of names is one a line
        transport.pull(there, [name, "not there"], back)
        assert (back / name / "file").read_text() == "content"


def test_quoting_is_one_word() -> None:
    for text in HOSTILE:
        assert Here().sh(f"printf %s {quote(text)}").text == text


@pytest.mark.promise("What a node wrote that is too large or that this disk cannot name stays there, and costs no other file.")
def test_a_file_that_cannot_come_costs_no_other(transport: Transport, tmp_path: Path) -> None:
    there, here = tmp_path / "there" / "job", tmp_path / "here"
    there.mkdir(parents=True)
    (there / "more").mkdir()
    for name, size_bytes in (
        ("spool.jsonl", 2**26),
        ("more/spool.jsonl", 2**34),
        ("core", 2**42),
        ("n" * 255, 1),
        ("folder here", 1),
        ("t1-r1.json", 7),
        ("-o", 3),
    ):
        (there / name).touch()
        os.truncate(there / name, size_bytes)
    os.mkfifo(there / "pipe")
    (here / "job/folder here").mkdir(parents=True)
    left = transport.pull(str(there.parent), ["job", "absent"], here)
    assert sorted(left) == [
        "job/core: larger than 256 MiB",
        "job/folder here: Is a directory",
        "job/more/spool.jsonl: larger than 8192 MiB",
        f"job/{'n' * 255}: File name too long",
    ]
    found = {path.name: path.stat().st_size for path in (here / "job").iterdir() if path.is_file()}
    assert found == {"spool.jsonl": 2**26, "t1-r1.json": 7, "-o": 3}


class FarEnd(Here):
    """A far end that answers with a tar of its own making, whatever it is asked for."""

    def __init__(self, names: list[str], kind: bytes = tarfile.REGTYPE) -> None:
        self.names, self.kind = names, kind

    def sh(self, script: str, *, timeout_s: float = 120.0, stdin: bytes = b"") -> Completed:  # noqa: ARG002
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as tar:
            for name in self.names:
                member = tarfile.TarInfo(name)
                member.size = 4
                if name.startswith("link"):
                    member.type, member.linkname, member.size = self.kind, "file", 0
                tar.addfile(member, io.BytesIO(b"evil"))
        return Completed(0, stream.getvalue(), "")


@pytest.mark.promise("A link in a far end's folder is not brought here.")
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, None])
def test_pull_brings_only_regular_files(tmp_path: Path, kind: bytes | None) -> None:
    there, names, far_end = tmp_path / "there", ["file", "link"], FarEnd(["file", "link"], kind or b"")
    there.mkdir()
    (there / "link").symlink_to("/etc/hostname")
    (there / "file").write_text("evil")
    (far_end if kind else Here()).pull(str(there), names, tmp_path / "back")
    assert sorted(path.name for path in (tmp_path / "back").rglob("*")) == ["file"]


@pytest.mark.promise("No name in a far end's tar leads out of the run folder.")
@pytest.mark.promise("No absolute name in a far end's tar is written.")
@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/ABSOLUTE/outside", "..", "a/.."])
def test_nothing_of_a_far_end_lands_outside_of_the_folder(tmp_path: Path, name: str) -> None:
    name = name.replace("/ABSOLUTE", str(tmp_path))
    FarEnd([name, "inside"]).pull("there", ["file"], tmp_path / "run" / "back")
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == ["run/back/inside"]


@pytest.mark.promise("SBATCH_ and SLURM_ variables of the submitting shell do not reach the scheduler.")
def test_the_submitting_shells_settings_do_not_travel(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "wrong")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert transport.sh("env | grep -E '^(SBATCH|SLURM)_'; true").text == ""


@pytest.mark.promise("Of the user's shell, only variables that select the scheduler's instance reach its commands.")
def test_what_selects_the_instance_travels_and_the_cluster_file_may_set_it(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/b/slurm.conf")
    monkeypatch.setenv("SLURM_CONF_SERVER", "ctl:6817")
    monkeypatch.setenv("SLURM_JWT", "token")
    monkeypatch.setenv("SLURM_CLUSTERS", "elsewhere")
    seen = "env | grep -E '^SLURM_' | sort"
    assert transport.sh(seen).text.split() == ["SLURM_CONF=/etc/b/slurm.conf", "SLURM_CONF_SERVER=ctl:6817", "SLURM_JWT=token"]
    transport.environment = commands_environment("slurm", {"SLURM_CONF": "/etc/c d/slurm.conf"})
    assert "SLURM_CONF=/etc/c d/slurm.conf\n" in transport.sh(seen).text
    transport.environment = commands_environment("local", {})
    assert transport.sh(seen).text == ""


@pytest.mark.promise("A command that ends with 255 is no lost connection.")
def test_a_command_that_ends_with_255_is_no_lost_connection(transport: Transport) -> None:
    done = transport.sh("echo said; exit 255")
    assert (done.returncode, done.text) == (255, "said\n")


def test_an_answer_that_breaks_off_is_a_lost_connection(ssh: Ssh) -> None:
    with pytest.raises(TransportError) as caught:
        ssh.sh("echo half; kill -KILL $$")
    assert caught.value.transient


@pytest.mark.promise("A command that hangs is ended by its time-out, whoever holds its output open.")
@pytest.mark.heavy
def test_a_time_out_ends_a_command_whose_grandchild_holds_the_pipe(transport: Transport, tmp_path: Path) -> None:
    here = f"cd {quote(str(tmp_path))}"
    for start in ("sleep 60 & echo $! >left; wait", "setsid sleep 61 & echo $! >away; wait"):
        began = time.monotonic()
        with pytest.raises(TransportError, match="no end after 1 s"):
            transport.sh(f"{here}; {start}", timeout_s=1)
        assert time.monotonic() - began < 5, "hpcq waited for the pipe, not for its own time-out"
    wait_for(lambda: not Path(f"/proc/{(tmp_path / 'left').read_text().strip()}").exists())
    os.kill(int((tmp_path / "away").read_text()), signal.SIGKILL)  # what left the group is left alone


@pytest.mark.promise("A lost connection may be tried again: it is transient.")
def test_a_lost_connection_is_transient_and_says_how_to_try(ssh: Ssh, tmp_path: Path) -> None:
    assert ssh.sh("echo up").text == "up\n"
    (tmp_path / "cut").touch()
    with pytest.raises(TransportError, match="ssh head: cannot be reached: Connection closed") as caught:
        ssh.sh("echo down")
    assert caught.value.transient
    assert caught.value.hint is not None
    assert "BatchMode=yes" in caught.value.hint


def test_a_silent_far_end_is_given_up_when_the_users_own_settings_say_or_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    config = tmp_path / "config"
    for text, ours in (("", True), ("Host *\n    ServerAliveInterval 7\n", False)):
        config.write_text(text)
        assert any(word.startswith("ServerAliveInterval=") for word in Ssh("head", config)._connection()) is ours


@pytest.fixture
def far_end(tmp_path: Path) -> Iterator[Path]:
    """A configuration of ssh whose host `head` is an sshd that ssh itself starts; control sockets go to `<name>.d`."""
    if shutil.which("sshd", path="/usr/sbin:/usr/bin") is None or os.getuid() != 0:
        pytest.skip("needs sshd, and root for a /run of its own")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody have a /run of its own")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    server = (
        f"HostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/user.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
    )
    (tmp_path / "sshd_config").write_text(server)
    config = tmp_path / "config"
    config.write_text(
        f"Host head\n  HostName 127.0.0.1\n  User root\n  IdentityFile {tmp_path}/user\n  StrictHostKeyChecking no\n"
        f"  UserKnownHostsFile /dev/null\n  ProxyCommand unshare --mount {tmp_path}/start\n"
    )
    (tmp_path / "start").write_text(
        "#!/bin/sh\nmount -t tmpfs none /run && mkdir -m 755 /run/sshd &&"
        f" exec /usr/sbin/sshd -i -f {tmp_path}/sshd_config -E {tmp_path}/log\n"
    )
    (tmp_path / "start").chmod(0o755)
    with tempfile.TemporaryDirectory(prefix="ssh") as short:  # the path of a socket has at most 104 bytes
        (tmp_path / "config.d").symlink_to(short)
        yield config


def _master(config: Path, socket: Path) -> int:
    """The process that holds ssh's connection."""
    check = ["ssh", "-F", str(config), "-o", f"ControlPath={socket}", "-O", "check", "head"]
    said = subprocess.run(check, capture_output=True, text=True, check=True).stderr
    return int(said.partition("pid=")[2].partition(")")[0])


@pytest.mark.heavy
@pytest.mark.promise(
    "The socket that a killed ssh connection leaves stops no later command; the next connection takes its place."
)
def test_a_killed_connection_leaves_a_socket_that_stops_nobody(far_end: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row `hpcq-ssh-UID/` of the leftover files."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.path.realpath(f"{far_end}.d"))
    assert Ssh("head", far_end).sh("echo up").text == "up\n"
    [socket] = Path(os.path.realpath(f"{far_end}.d"), f"hpcq-ssh-{os.getuid()}").iterdir()
    os.kill(_master(far_end, socket), signal.SIGKILL)
    assert socket.exists()
    try:
        assert Ssh("head", far_end).sh("echo again").text == "again\n"
        assert _master(far_end, socket)
    finally:
        subprocess.run(["ssh", "-F", str(far_end), "-o", f"ControlPath={socket}", "-O", "exit", "head"], check=False)


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransportError, match="cannot write there"):
        Here().push(tmp_path, str(tmp_path / "file" / "below"))


@pytest.mark.promise("A program that does not end is killed.")
def test_a_program_that_does_not_end_is_killed() -> None:
    with pytest.raises(TransportError, match=r"no end after 0\.2 s"):
        run_here(["sleep", "60"], timeout_s=0.2)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(TransportError, match="no-such-program: not found on this machine"):
        run_here(["no-such-program"])
