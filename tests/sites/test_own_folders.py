"""A stranger on the same machine: what he prepares is neither run nor believed. Two real users, neither of them root."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcq import assets
from hpcq.cli.annotations import _person
from hpcq.clock import Clock
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import NOBODY_ELSE, Budget, Trusted
from hpcq.errors import HpcqError
from hpcq.own_folder import HINT, secure
from hpcq.runner.queue.account import HeldByJobs, SharedAccount
from hpcq.runner.site import build, checking
from hpcq.store.database import reading
from hpcq.transport import Completed, Here
from tests import REPOSITORY
from tests.driver.test_kept_builds import MAIN, MAKEFILE, word_of
from tests.local.local_desk import CLUSTER, LocalDesk

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes two other users")
#: No machine knows them by name, so files show their numbers.
VICTIM, STRANGER, TEAM = 61001, 61002, 61003


class As(Here):
    """This machine as another user sees it."""

    def __init__(self, uid: int, *groups: int) -> None:
        super().__init__()
        self._who = ["setpriv", f"--reuid={uid}", f"--regid={uid}"]
        self._who += [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]

    def sh(self, script: str, *, timeout_s: float = 120.0, stdin: bytes = b"") -> Completed:
        text = f"umask 077\n{script}"
        done = subprocess.run(
            [*self._who, "/bin/sh", "-c", text],
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C"},
            cwd="/",
            check=False,
        )
        return Completed(done.returncode, done.stdout, done.stderr.decode())


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of root's that both users can enter and neither can write."""
    folder = Path(tempfile.mkdtemp(prefix="hpcq-users-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def scratch(place: Path) -> Path:
    """As sites have it: of root, everybody writes there, and it is sticky."""
    folder = place / "scratch"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def refusal(folder: Path, who: Here, trusted: Trusted = NOBODY_ELSE) -> str:
    """The words that refuse a folder; empty: it is fine."""
    try:
        secure(who, "", [str(folder)], trusted)
    except HpcqError as error:
        return error.message
    return ""


def of(uid: int, folder: Path, mode: int, gid: int | None = None) -> Path:
    """Make a folder of that user."""
    folder.mkdir()
    os.chown(folder, uid, uid if gid is None else gid)
    folder.chmod(mode)
    return folder


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "main.c").write_text(MAIN)
    (folder / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(assets, "kernel_sources", lambda: folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@needs_root
@pytest.mark.heavy
@pytest.mark.usefixtures("sources")
@pytest.mark.promise("A kept program whose sum this machine does not know as its own is never run.")
def test_a_program_that_a_stranger_kept_for_us_is_never_run(
    scratch: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole break-in: a folder made for the victim, and in it a kept build with the checksum that fits it."""
    (place / "tiny.yaml").write_text(
        f"name: tiny\nscheduler: local\nnodes: [a, b]\nwork_directory: {scratch}\ncompiler: {{cflags: -DWORD=one}}\n"
    )
    cluster = read_cluster(place / "tiny.yaml")
    victim, stranger = As(VICTIM), As(STRANGER)
    hpcq = scratch / "hpcq"
    assert stranger.sh(f"mkdir -m 777 {hpcq} && mkdir -m 777 {hpcq}/builds").returncode == 0

    root = f"{hpcq}/run-1/tiny"
    with pytest.raises(
        HpcqError, match=f"^tiny: {hpcq}: belongs to .*: must belong to you, to root or to one of trusted_users"
    ):
        build.build_kernels(cluster, victim, root, {"hpcq-net"})
    assert [path.name for path in hpcq.iterdir()] == ["builds"], "nothing was put where others can change it"
    monkeypatch.setattr(checking, "reach", lambda _: victim)
    said = next(one for one in checking.check_cluster(cluster) if one.item == "work directory")
    assert (said.ok, said.advice) == (False, HINT)
    assert said.found.startswith(f"{hpcq}: belongs to ")
    account = SharedAccount(victim, f"{hpcq}/account/tiny", "run-1", Budget(max_jobs=1), Clock())
    account.refresh(HeldByJobs(), 0.0)
    assert any("belongs to" in words for words in account.news())

    # And where the victim once left it open: a kept program is what this user's own build says it is, or it is none.
    shutil.rmtree(hpcq)
    first = build.build_kernels(cluster, victim, root, {"hpcq-net"})
    assert (Path(first["root"]).stat().st_uid, word_of(first)) == (VICTIM, "one")
    assert build.build_kernels(cluster, victim, f"{hpcq}/run-2/tiny", {"hpcq-net"})["kept"] == ["hpcq-net"]
    [kept] = (hpcq / "builds").iterdir()
    marker = place / "stranger-was-run"
    (kept / "hpcq-net").write_text(f"#!/bin/sh\n: >{marker}\n")
    (kept / "sum").write_text(
        subprocess.run(["sha256sum", "hpcq-net"], cwd=kept, capture_output=True, text=True, check=True).stdout
    )
    again = build.build_kernels(cluster, victim, f"{hpcq}/run-3/tiny", {"hpcq-net"})
    assert (again["kept"], word_of(again), marker.exists()) == ([], "one", False)
    other = build.build_kernels(cluster, As(STRANGER), f"{scratch}/other/tiny", {"hpcq-net"})
    assert other["kept"] == [], "what another user kept is not taken, though this machine knows its sum"


@needs_root
@pytest.mark.promise("Sticky folders of root, homes, own links and a base that several users share are usable as they are.")
def test_usual_sites_are_taken_as_they_are(scratch: Path, place: Path) -> None:
    """A sticky folder for all, a home below root's, a folder that links lead to, and two users below one base."""
    victim = As(VICTIM)
    home = of(VICTIM, place / "home", 0o755)
    (home / "cache").symlink_to(scratch / "mine")
    os.lchown(home / "cache", VICTIM, VICTIM)
    (place / "fast").symlink_to("scratch")
    base = of(0, scratch / "hpcq", 0o1777)
    for folder in (scratch / "mine", home / "cache" / "hpcq" / "run", place / "fast" / "a b'c", base / "run-1", home):
        assert refusal(folder, victim) == "", folder
    assert refusal(base / "run-2", As(STRANGER)) == ""
    made = (scratch / "mine").stat()
    assert (made.st_uid, made.st_mode & 0o7777) == (VICTIM, 0o700)
    assert "belongs to" in refusal(base / "run-1", As(STRANGER))


@needs_root
@pytest.mark.parametrize(
    ("owner", "gid", "mode", "words"),
    [
        (0, 0, 0o777, "everybody can replace what lies in it (mode 777): must be writable by nobody else"),
        (VICTIM, VICTIM, 0o777, "everybody can replace what lies in it (mode 777): must be writable by nobody else"),
        (0, TEAM, 0o2775, "the group UNKNOWN can replace what lies in it (mode 2775): must be writable by nobody else"),
        (
            STRANGER,
            STRANGER,
            0o755,
            "belongs to UNKNOWN, who can change it: must belong to you, to root or to one of trusted_users",
        ),
        (
            STRANGER,
            STRANGER,
            0o1777,
            "belongs to UNKNOWN, who can change it: must belong to you, to root or to one of trusted_users",
        ),
        (0, TEAM, 0o3775, ""),
    ],
)
@pytest.mark.promise("Nobody else but root and whom the cluster file trusts can put another folder in place of hpcq's.")
def test_above_nobody_else_can_put_another_folder_in_place_of_ours(
    place: Path, owner: int, gid: int, mode: int, words: str
) -> None:
    above = of(owner, place / "above", mode, gid)
    mine = of(VICTIM, above / "mine", 0o700)
    assert refusal(mine / "hpcq", As(VICTIM)) == (f"{above}: {words}" if words else "")
    assert list(mine.iterdir()) == ([] if words else [mine / "hpcq"])
    trusted = Trusted(users=(str(STRANGER),), groups=(str(TEAM),))
    everybody = mode & 0o002 and not mode & 0o1000
    assert bool(refusal(mine / "hpcq", As(VICTIM), trusted)) == bool(everybody)


@needs_root
@pytest.mark.parametrize(("mode", "gid"), [(0o777, VICTIM), (0o1777, VICTIM), (0o770, TEAM), (0o1770, TEAM)])
@pytest.mark.promise("Each folder that hpcq uses belongs to its user and is writable by nobody else.")
def test_its_own_folder_is_writable_by_nobody_else_whomever_we_trust_above(place: Path, mode: int, gid: int) -> None:
    mine = of(VICTIM, place / "mine", mode, gid)
    assert f"{mine}: " in refusal(mine, As(VICTIM), Trusted(users=(str(STRANGER),), groups=(str(TEAM),)))


@needs_root
@pytest.mark.promise("A link of another user leads hpcq nowhere.")
def test_no_link_of_a_stranger_leads_us_anywhere(scratch: Path) -> None:
    """Not even to a folder of our own: the next time it may lead elsewhere."""
    mine = of(VICTIM, scratch / "mine", 0o700)
    As(STRANGER).sh(f"ln -s {mine} {scratch}/hpcq")
    assert "belongs to" in refusal(scratch / "hpcq", As(VICTIM))
    assert "belongs to" in refusal(scratch / "hpcq" / "builds", As(VICTIM))
    assert list(mine.iterdir()) == []
    As(VICTIM).sh(f"ln -s loop {scratch}/loop; ln -s {scratch}/nowhere/x {scratch}/far; : >{scratch}/file")
    assert refusal(scratch / "loop", As(VICTIM)).endswith(": too many links")
    assert refusal(scratch / "far", As(VICTIM)) == "", "where our own link leads is made"
    assert refusal(scratch / "file" / "x", As(VICTIM)).endswith("file: is not a folder")
    assert refusal(Path("/usr/hpcq"), As(VICTIM)) == "/usr/hpcq: cannot be made: Permission denied"
    assert "belongs to root: must be yours" in refusal(Path("/usr/lib"), As(VICTIM))


@needs_root
def test_what_is_made_is_private_whatever_access_lists_the_folder_above_hands_down(scratch: Path) -> None:
    everything = [(1, -1), (2, STRANGER), (4, -1), (16, -1), (32, -1)]  # user, this user, group, mask, others
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", tag, 7, number) for tag, number in everything)
    os.setxattr(scratch, "system.posix_acl_default", acl)
    (scratch / "theirs").mkdir()
    assert As(STRANGER).sh(f": >{scratch}/theirs/planted").returncode == 0, "the list holds here"
    assert refusal(scratch / "mine", As(VICTIM)) == ""
    assert As(STRANGER).sh(f": >{scratch}/mine/planted").returncode != 0


@needs_root
@pytest.mark.promise("An access list that lets others write is seen, also where the group is the user's own.")
def test_an_access_list_is_not_taken_for_the_users_own_group(place: Path) -> None:
    """Its mask stands where the mode has the group: 770, and the group is the user's."""
    victim = As(NAMED)
    mine = of(NAMED, place / "mine", 0o770)
    assert refusal(mine, victim) == "", "the group of his own name"
    entries = [(1, 7, -1), (2, 7, STRANGER), (4, 0, -1), (16, 7, -1), (32, 0, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", tag, rights, number) for tag, rights, number in entries)
    os.setxattr(mine, "system.posix_acl_access", acl)
    assert As(STRANGER).sh(f": >{mine}/planted").returncode == 0, "the list holds here"
    said = "whom its access list names can change what hpcq keeps there (mode 770): must be writable by nobody else"
    assert refusal(mine, victim) == f"{mine}: {said}"
    assert "whom its access list names can replace what lies in it" in refusal(mine / "hpcq", victim)
    assert refusal(mine / "hpcq", victim, Trusted(groups=(grp.getgrgid(NAMED).gr_name,))) == ""
    mine.chmod(0o700)  # as the hint says
    assert refusal(mine, victim) == ""


@pytest.mark.promise("Run folders and the state folder are checked as folders on a cluster are.")
def test_a_run_is_not_made_where_others_can_replace_it(tmp_path: Path) -> None:
    """Here on the driver's machine too: run folders hold scripts, the state folder the queue of the embedded scheduler."""
    desk = LocalDesk.at(tmp_path / "desk")
    desk.campaign()
    (desk.folder / "runs").mkdir()
    (desk.folder / "runs").chmod(0o777)
    said = desk.hpcq("run", "try.yaml", expect=1).stderr
    assert f"error: {desk.folder}/runs: everybody can replace what lies in it (mode 777)" in said
    assert not list(desk.folder.glob("runs/*/tiny/journal.jsonl"))
    (desk.folder / "runs").chmod(0o755)
    queue = desk.folder / "home" / ".local" / "state" / "hpcq"
    queue.chmod(0o777)
    for verb in (["run", "try.yaml"], ["plan", "try.yaml"], ["cluster", "build", "tiny"]):
        assert f"{queue}: everybody can replace" in desk.hpcq(*verb, expect=1).stderr, verb
    assert "BAD  connection" in (said := desk.hpcq("cluster", "check", "tiny", expect=1).stdout)
    assert f"{queue}: everybody can replace" in said
    queue.chmod(0o700)
    desk.hpcq("run", "try.yaml")
    assert {path.stat().st_mode & 0o777 for path in (desk.folder / "runs").iterdir()} == {0o700}


def _hpcq(uid: int, folder: Path, *words: str, groups: tuple[int, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
    """A verb of that user in a folder."""
    who = ["setpriv", f"--reuid={uid}", f"--regid={uid}"]
    who += [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
    home = folder.parent / f"home-{uid}"
    if not home.exists():
        of(uid, home, 0o755)
    return subprocess.run(
        [*who, sys.executable, "-P", "-m", "hpcq", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(REPOSITORY), "HPCQ_LABS": "no", **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


#: Of the system's own users: ssh refuses who has no name.
NAMED = pwd.getpwnam("daemon").pw_uid


def _trap(folder: Path, marker: Path) -> str:
    """A cluster file that starts a command as soon as anything asks that cluster."""
    config = folder / "ssh_config"
    config.write_text(f"Host *\n  ProxyCommand sh -c 'id -u >>{marker}; exit 1'\n")
    config.chmod(0o644)
    reached = f"connection: {{ssh: nowhere, ssh_config: {config}}}"
    return f"name: trap\nscheduler: slurm\n{reached}\nwork_directory: /tmp\ninterface: lo\n"


def _given_to(uid: int, folder: Path, gid: int | None = None) -> None:
    for one in [folder, *folder.rglob("*")]:
        os.lchown(one, uid, uid if gid is None else gid)


CAMPAIGN = "name: try\nclusters: [trap]\nrepetitions: 1\ntests: [{kernel: tcp_pingpong}]\n"


@needs_root
@pytest.mark.promise("A run of somebody else is neither resumed nor cancelled: nothing that its files say is done.")
def test_a_run_that_a_stranger_left_is_not_gone_on_with(scratch: Path, place: Path) -> None:
    """What lies in ./runs may be anybody's, and the newest one is taken without a name."""
    marker, precious = place / "was-run", of(NAMED, place / "mine", 0o755) / "precious"
    for path in (marker, precious):
        path.write_text("years of work\n")
        os.chown(path, NAMED, NAMED)
    run = scratch / "runs" / "try-20991231T000000Z-ffff"
    (run / "clusters").mkdir(parents=True)
    (run / "trap").mkdir()
    (run / "campaign.yaml").write_text(CAMPAIGN)
    trap = f"{_trap(run, marker)}trusted_users: ['{STRANGER}']\n"
    (run / "clusters" / "trap.yaml").write_text(trap)
    (run / "secret").write_text("0123456789" * 6)
    described = {"run": run.name, "campaign": "try", "clusters": ["trap"], "seed": 1, "created_utc": "2099-12-31T00:00:00.000Z"}
    database = str(scratch / "results.db")
    (run / "run.json").write_text(json.dumps({"format": 1, "links": [], "confirm": False, "database": database, **described}))
    for name in ("log.txt", "snakemake.log"):
        (run / name).symlink_to(precious)
    _given_to(STRANGER, run)
    run.parent.chmod(0o1777)
    for folder in (run, run / "trap"):
        folder.chmod(0o777)
    before = sorted(run.rglob("*"))
    for words in (["resume"], ["cancel"], ["resume", str(run)]):
        done = _hpcq(NAMED, scratch, *words)
        assert done.returncode == 1, done
        assert f"{run}: belongs to UNKNOWN: must be yours" in done.stderr
        assert "started it" in done.stderr
        assert (marker.read_text(), precious.read_text()) == ("years of work\n", "years of work\n"), words
        assert sorted(run.rglob("*")) == before, words


@needs_root
@pytest.mark.promise("Whom to trust, only a cluster file of the user's own says.")
def test_a_run_that_a_stranger_left_says_not_whom_to_trust(place: Path) -> None:
    """He could have it read, and then put something else in its place: the words of his file are his."""
    run = of(VICTIM, of(STRANGER, place / "above", 0o755) / "run", 0o700)
    (run / "clusters").mkdir()
    (run / "clusters" / "tiny.yaml").write_text(f"name: tiny\nscheduler: local\nnodes: [a, b]\ntrusted_users: ['{STRANGER}']\n")
    _given_to(VICTIM, run / "clusters")
    code = "import sys; from pathlib import Path; from hpcq.run_folder.paths import RunFolder\n"
    code += "from hpcq.runner.site.place import refuse_others; refuse_others(RunFolder(Path(sys.argv[1])))"
    who = ["setpriv", "--clear-groups", f"--reuid={VICTIM}", f"--regid={VICTIM}", sys.executable, "-c", code, str(run)]
    subprocess.run(who, cwd=REPOSITORY, check=True)
    os.chown(run / "clusters" / "tiny.yaml", STRANGER, STRANGER)
    done = subprocess.run(who, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert f"{place}/above: belongs to UNKNOWN, who can change it" in done.stderr


@needs_root
@pytest.mark.promise("A name finds no cluster file, campaign or kernel that a stranger put in the present folder.")
def test_what_a_stranger_put_here_is_not_found_by_its_name(scratch: Path, place: Path) -> None:
    marker = place / "was-run"
    marker.touch()
    os.chown(marker, NAMED, NAMED)
    (scratch / "clusters").mkdir()
    (scratch / "clusters" / "trap.yaml").write_text(_trap(scratch, marker))
    (scratch / "campaigns").mkdir()
    for path in (scratch / "campaigns" / "demo.yaml", scratch / "other"):
        path.write_text(CAMPAIGN)
        os.chown(path, STRANGER, STRANGER)
    for folder in ("clusters", "campaigns"):
        _given_to(STRANGER, scratch / folder)
    mine = scratch / "mine.yaml"
    mine.write_text(CAMPAIGN)
    os.chown(mine, NAMED, NAMED)
    belongs = f"{scratch}/clusters: belongs to uid-{STRANGER}: must belong to you or to root"
    for words in (["cluster", "check", "trap"], ["plan", "mine.yaml"], ["run", "mine.yaml"], ["clean", "trap"]):
        done = _hpcq(NAMED, scratch, *words)
        assert done.returncode == 2, done
        assert belongs in done.stderr, words
        assert f"HPCQ_CLUSTERS={scratch}/clusters" in done.stderr
    done = _hpcq(NAMED, scratch, "doctor", "--reach")
    assert belongs in done.stdout
    for name, where in (("demo", "campaigns"), ("other", "other")):
        done = _hpcq(NAMED, scratch, "plan", name)
        assert f"{scratch}/{where}: belongs to uid-{STRANGER}" in done.stderr
    assert marker.read_text() == ""
    # Who says which folder means it, and so does who names a path.
    for done in (
        _hpcq(NAMED, scratch, "cluster", "check", "clusters/trap.yaml"),
        _hpcq(NAMED, scratch, "cluster", "check", "trap", HPCQ_CLUSTERS="clusters"),
    ):
        assert belongs not in done.stderr
    assert marker.read_text() == f"{NAMED}\n" * 2


@needs_root
@pytest.mark.parametrize(("member", "mode", "found"), [(True, 0o2770, True), (False, 0o2775, False), (True, 0o2777, False)])
@pytest.mark.promise("In the folder of a group, its members find each other's cluster files and campaigns by name.")
def test_members_of_a_group_find_each_others_files(place: Path, member: bool, mode: int, found: bool) -> None:
    """Here one could do everything to the other's files; they know that."""
    _find_in(of(0, place / "team", mode, gid=TEAM), member=member, found=found)


@needs_root
@pytest.mark.promise("A folder that one member of a group makes where everybody writes is not the group's.")
def test_in_a_sticky_folder_a_group_has_no_folder_of_its_own(scratch: Path, place: Path) -> None:
    """Else whoever is in one group with all users, as at many sites, gives them his files; its head's folder is the group's."""
    _find_in(of(STRANGER, scratch / "team", 0o2770, gid=TEAM), member=True, found=False)
    _find_in(of(STRANGER, place / "team", 0o2770, gid=TEAM), member=True, found=True)


def _find_in(team: Path, *, member: bool, found: bool) -> None:
    (team / "clusters").mkdir()
    (team / "clusters" / "tiny.yaml").write_text("name: tiny\nscheduler: local\nnodes: [a, b]\n")
    _given_to(STRANGER, team / "clusters", TEAM)
    done = _hpcq(VICTIM, team, "cluster", "check", "tiny", groups=(TEAM,) if member else ())
    refused = "must be" in done.stderr or "must belong" in done.stderr
    assert refused != found, done


@needs_root
@pytest.mark.promise("A link that leads to a file is looked at like a folder on the way to it.")
def test_who_could_have_put_a_file_there(scratch: Path, place: Path) -> None:
    """Each way in which something on the way is somebody else's."""
    mine = of(VICTIM, scratch / "mine", 0o755)
    (mine / "file").write_text("")
    os.chown(mine / "file", VICTIM, VICTIM)
    (scratch / "link").symlink_to("mine")
    os.lchown(scratch / "link", STRANGER, STRANGER)
    (mine / "up").symlink_to("../link/file")
    os.lchown(mine / "up", VICTIM, VICTIM)
    (mine / "fine").symlink_to("../mine/./file")
    (place / "fast").symlink_to(scratch)
    code = "import sys; from pathlib import Path; from hpcq.strangers import stranger\n"
    code += "for name in sys.argv[1:]: print(stranger(Path(name)))"

    def told(*paths: Path) -> list[str]:
        who = ["setpriv", "--clear-groups", f"--reuid={VICTIM}", f"--regid={VICTIM}", sys.executable, "-c", code]
        done = subprocess.run([*who, *map(str, paths)], cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    link = f"{scratch}/link: belongs to uid-{STRANGER}: must belong to you or to root"
    paths = [
        mine / "file",
        mine / "fine",
        place / "fast" / "mine" / "file",
        mine / "up",
        scratch / "link" / "file",
        mine / "absent",
    ]
    assert told(*paths) == ["", "", "", link, link, ""]
    mine.chmod(0o775)
    assert told(mine / "file") == [f"{mine}: the group gid-{VICTIM} can change it (mode 775): must be writable by nobody else"]
    mine.chmod(0o777)
    assert told(mine / "file") == [f"{mine}: everybody can change it (mode 777): must be writable by nobody else"]


@needs_root
@pytest.mark.promise("ssh's socket lies where nobody else can put another in its place.")
def test_the_socket_of_ssh_is_not_where_others_can_replace_its_folder(place: Path) -> None:
    """Who answers there speaks in the cluster's stead."""
    shared = of(0, place / "shared", 0o777)
    code = "from hpcq.transport import _control_folder; print(_control_folder())"
    who = ["setpriv", "--clear-groups", f"--reuid={VICTIM}", f"--regid={VICTIM}", sys.executable, "-c", code]
    for variable in ("TMPDIR", "XDG_RUNTIME_DIR"):
        given = {"PATH": os.environ["PATH"], variable: str(shared)}
        done = subprocess.run(who, cwd=REPOSITORY, env=given, capture_output=True, text=True, check=False)
        assert f"{shared}: everybody can change it (mode 777)" in done.stderr
        shared.chmod(0o1777)
        subprocess.run(who, cwd=REPOSITORY, env=given, capture_output=True, text=True, check=True)
        shared.chmod(0o777)
    theirs = of(STRANGER, place / "theirs", 0o700)
    for folder, why in ((theirs, "Permission denied"), (theirs.with_name("absent"), "No such file or directory")):
        given = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(folder)}
        done = subprocess.run(who, cwd=REPOSITORY, env=given, capture_output=True, text=True, check=False)
        assert f"{folder}/hpcq-ssh-{VICTIM}: cannot be made: {why}" in done.stderr


@pytest.mark.promise("What stands in a cluster file for its commands is in no process list, page, export or log.")
def test_a_token_of_a_cluster_file_is_shown_nowhere(tmp_path: Path) -> None:
    """It is copied with the file: to the run's folder, the job's script, and the database, which are private."""
    desk = LocalDesk.at(tmp_path / "desk")
    desk.cluster("tiny", CLUSTER + "environment: {{API_TOKEN: s3cr3t-word}}\n")
    desk.campaign()
    said = desk.hpcq("run", "try.yaml")
    shown = [
        said.stdout,
        said.stderr,
        *(path.read_text() for path in desk.folder.glob("runs/*/*") if path.suffix in {".txt", ".html", ".log"}),
    ]
    shown += [desk.hpcq("export", "--format", kind).stdout for kind in ("csv", "jsonl", "junit", "markdown", "prometheus")]
    shown += [
        desk.hpcq(*words).stdout for words in (["show", "1", "--all", "--json"], ["results", "--json"], ["status", "--json"])
    ]
    assert len(shown) > 10
    assert [text for text in shown if "s3cr3t-word" in text] == []
    holding = [path for path in desk.folder.rglob("*") if path.is_file() and b"s3cr3t-word" in path.read_bytes()]
    assert len(holding) > 3
    kept = [path for path in holding if path != desk.folder / "clusters" / "tiny.yaml"]
    private = [path for path in kept if path.stat().st_mode & 0o077 == 0 or path.is_relative_to(desk.folder / "runs")]
    assert kept == private
    assert {path.stat().st_mode & 0o777 for path in desk.folder.glob("runs/*")} == {0o700}


@needs_root
@pytest.mark.promise("A dead user's lock that only he may remove is named with its owner at once; nobody waits for it.")
def test_a_lock_that_another_user_left_in_a_sticky_folder_is_named(scratch: Path) -> None:
    """rename() is refused there, so it was an unknown error, and for ever."""
    take = "import sys; from hpcq.writer_lock import WriterLock; from pathlib import Path; WriterLock(Path(sys.argv[1]), 40.0)"
    link, results = scratch / "results.db.writer", scratch / "results.db"
    words = [sys.executable, "-c", f"{take}; import os; os._exit(0)", str(results)]
    as_user = ("setpriv", "--clear-groups", f"--reuid={STRANGER}", f"--regid={STRANGER}")
    subprocess.run([*as_user, *words], check=True, cwd=REPOSITORY, timeout=30)
    assert link.lstat().st_uid == STRANGER
    as_user = ("setpriv", "--clear-groups", f"--reuid={VICTIM}", f"--regid={VICTIM}")
    done = subprocess.run([*as_user, *words], check=False, cwd=REPOSITORY, timeout=30, capture_output=True, text=True)
    assert f"has ended, and of uid-{STRANGER}: cannot be removed: Operation not permitted" in done.stderr
    subprocess.run(words, check=True, cwd=REPOSITORY, timeout=30)  # root may
    link.unlink()


@needs_root
@pytest.mark.promise("hpcq works for a user whom the machine knows by number only, also without a home folder.")
@pytest.mark.parametrize("words", [["kernels"], ["check", "campaigns/demo.yaml"], ["annotate", "--help"]])
def test_a_user_without_a_name_is_no_defect(words: list[str]) -> None:
    user = ("setpriv", "--clear-groups", f"--reuid={VICTIM}", f"--regid={VICTIM}", "env", "-i", "PATH=/usr/bin:/bin")
    done = subprocess.run(
        [*user, sys.executable, "-m", "hpcq", *words], check=False, cwd=REPOSITORY, timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_notes_of_a_user_without_a_name_have_his_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: VICTIM)
    assert _person() == f"uid-{VICTIM}"


def _add(database: Path, uid: int, *groups: int) -> subprocess.CompletedProcess[str]:
    """Open the database for writing as that user, with the usual umask."""
    who = (
        "setpriv",
        f"--reuid={uid}",
        f"--regid={uid}",
        f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups",
    )
    code = (
        "import sys, os; from pathlib import Path; from hpcq.store.database import writing, transaction; os.umask(0o022)\n"
        "with writing(Path(sys.argv[1])) as database, transaction(database):\n"
        '    database.execute("INSERT INTO cluster (name) VALUES (?)", (f"of-{os.getuid()}",))\n'
    )
    words = [*who, sys.executable, "-c", code, str(database)]
    return subprocess.run(words, check=False, cwd=REPOSITORY, timeout=60, capture_output=True, text=True)


@needs_root
@pytest.mark.promise("A new database is readable by its user only; in a setgid folder of a group, that group shares it.")
def test_a_database_is_its_users_or_its_groups(place: Path) -> None:
    own = of(VICTIM, place / "home", 0o755) / "results.db"
    assert _add(own, VICTIM).returncode == 0
    assert own.stat().st_mode & 0o777 == 0o600
    assert "cannot be" in _add(own, STRANGER).stderr or "unable to open" in _add(own, STRANGER).stderr
    team = of(0, place / "team", 0o2770, gid=TEAM) / "results.db"
    for uid in (VICTIM, STRANGER, VICTIM):
        done = _add(team, uid, TEAM)
        assert done.returncode == 0 or "UNIQUE" in done.stderr, done.stderr
    assert (team.stat().st_mode & 0o777, team.stat().st_gid) == (0o660, TEAM)
    with reading(team) as database:
        assert [row[0] for row in database.execute("SELECT name FROM cluster ORDER BY name")] == [
            f"of-{VICTIM}",
            f"of-{STRANGER}",
        ]


def _hot_journal(database: Path, other: Path) -> bytes:
    """What SQLite would take for the pages that a killed writer had changed: those of another database."""
    old, new = database.read_bytes(), other.read_bytes()
    [page] = struct.unpack(">H", old[16:18])
    begins = [at for at in range(0, len(new), page) if new[at : at + page] != old[at : at + page]]
    sums = [(1 + sum(new[at + page - 200 - step] for step in range(0, page - 200, 200))) & 0xFFFFFFFF for at in begins]
    rows = [
        struct.pack(">I", at // page + 1) + new[at : at + page] + struct.pack(">I", one)
        for at, one in zip(begins, sums, strict=True)
    ]
    head = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", len(rows), 1, len(new) // page, 512, page)
    return head.ljust(512, b"\0") + b"".join(rows)


@needs_root
@pytest.mark.promise("No journal that a stranger puts beside a database is written into it.")
@pytest.mark.parametrize("verb", [["runs"], ["db", "check"], ["db", "upgrade"]])
def test_no_journal_of_a_stranger_is_rolled_back(scratch: Path, place: Path, verb: list[str]) -> None:
    """SQLite asks nobody whose it is. In a sticky folder he can make one, and then its pages are ours."""
    database, other = scratch / "results.db", place / "other.db"
    assert _add(database, VICTIM).returncode == 0
    assert (scratch / "results.db-journal").stat().st_size == 0 or not (scratch / "results.db-journal").read_bytes()[0]
    with pytest.raises(FileExistsError):  # nobody else can make one where ours is
        os.open(scratch / "results.db-journal", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    (scratch / "results.db-journal").unlink()  # an earlier hpcq kept none
    shutil.copyfile(database, other)
    with sqlite3.connect(other) as changed:
        changed.execute("UPDATE cluster SET name = 'forged'")
    (scratch / "results.db-journal").write_bytes(_hot_journal(database, other))
    _given_to(STRANGER, scratch / "results.db-journal")
    before = database.read_bytes()
    done = _hpcq(VICTIM, scratch, *verb)
    assert f"results.db-journal: belongs to uid-{STRANGER}, and the database to uid-{VICTIM}" in done.stderr
    assert done.returncode == 1
    assert database.read_bytes() == before
    (scratch / "results.db-journal").unlink()
    assert "UNIQUE" in _add(database, VICTIM).stderr, "it can be written again"
    # A group that shares a database rolls back for each of its members, and nothing stays beside it.
    team = of(0, place / "team", 0o2770, gid=TEAM) / "results.db"
    assert _add(team, STRANGER, TEAM).returncode == 0
    assert not team.with_name("results.db-journal").exists()
    shutil.copyfile(team, other)
    with sqlite3.connect(other) as changed:
        changed.execute("UPDATE cluster SET name = 'before'")
    team.with_name("results.db-journal").write_bytes(_hot_journal(team, other))
    team.with_name("results.db-journal").chmod(0o660)
    os.chown(team.with_name("results.db-journal"), STRANGER + 5, TEAM)
    assert _add(team, VICTIM, TEAM).returncode == 0
    with reading(team) as shown:
        assert [row[0] for row in shown.execute("SELECT name FROM cluster")] == ["before", f"of-{VICTIM}"]


#: What writes a file, and the name that somebody can guess beforehand.
WRITERS = {
    "a file of --to": ("from hpcq.cli.output import write_out; write_out(['new'], target)", ".page.csv.part"),
    "a page": ("from hpcq.run_folder.paths import write_text; write_text(target, 'new')", "page.csv.{pid}.tmp"),
    "the probe of doctor": ("from hpcq.runner.watch.doctor import _locks; _locks(target.parent)", ".hpcq-doctor-{pid}"),
    "the lock of accept": (
        "from hpcq.runner.accept.accepting import alone\nwith alone(target.parent, 'alpha'): pass",
        ".accept-alpha.lock",
    ),
}


@needs_root
@pytest.mark.promise("In a folder that a group shares, no link that somebody put there makes hpcq write over another file.")
@pytest.mark.parametrize("writer", WRITERS)
def test_no_link_in_a_shared_folder_is_written_through(place: Path, writer: str) -> None:
    code, name = WRITERS[writer]
    team = of(0, place / "team", 0o2770, gid=TEAM)
    precious = of(VICTIM, place / "home", 0o755) / "precious"
    precious.write_text("years of work")
    os.chown(precious, VICTIM, VICTIM)
    start = f"import sys; from pathlib import Path; sys.stdin.readline(); target = Path(sys.argv[1])\n{code}\n"
    who = ["setpriv", f"--reuid={VICTIM}", f"--regid={VICTIM}", f"--groups={TEAM}"]
    with subprocess.Popen(
        [*who, sys.executable, "-c", start, str(team / "page.csv")],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as victim:
        link = team / name.format(pid=victim.pid)
        link.symlink_to(precious)
        os.lchown(link, STRANGER, TEAM)
        _, said = victim.communicate(b"go\n", timeout=60)
    assert precious.read_text() == "years of work", said
    if "lock" in writer:
        assert b"cannot be opened" in said
    else:
        assert victim.returncode == 0, said


@needs_root
@pytest.mark.promise("A new database is made where its user said, and nobody else owns it.")
def test_a_stranger_says_neither_where_a_database_is_made_nor_owns_it(place: Path) -> None:
    team = of(0, place / "team", 0o2770, gid=TEAM)
    elsewhere = of(VICTIM, place / "home", 0o755) / "elsewhere"
    (team / "results.db").symlink_to(elsewhere)
    os.lchown(team / "results.db", STRANGER, TEAM)
    done = _add(team / "results.db", VICTIM, TEAM)
    assert "must be yours" in done.stderr
    assert not elsewhere.exists()
    os.lchown(team / "results.db", VICTIM, TEAM)
    assert _add(team / "results.db", VICTIM, TEAM).returncode == 0, "one's own link is followed"
    gift = of(0, place / "open", 0o1777) / "results.db"
    gift.touch()
    gift.chmod(0o666)
    os.chown(gift, STRANGER, STRANGER)
    done = _add(gift, VICTIM)
    assert "a new database must be yours" in done.stderr
    assert gift.stat().st_size == 0


@needs_root
@pytest.mark.promise("No database is written where everybody could put another in its place.")
@pytest.mark.parametrize("way", ["its folder", "a folder above", "through a link"])
def test_no_database_is_written_where_everybody_can_replace_it(place: Path, way: str) -> None:
    everybodys = of(0, place / "open", 0o777)
    if way == "its folder":
        database = everybodys / "results.db"
    elif way == "a folder above":
        database = of(VICTIM, everybodys / "mine", 0o700) / "results.db"
    else:
        (everybodys / "results.db").symlink_to(of(VICTIM, place / "home", 0o755) / "results.db")
        database = everybodys / "results.db"
    done = _add(database, VICTIM)
    assert f"{everybodys}: everybody can change it (mode 777): must be writable by nobody else" in done.stderr
    assert not database.exists()
    assert not list(everybodys.glob("*.writer")), "nothing half-written"
    everybodys.chmod(0o1777)
    assert _add(database, VICTIM).returncode == 0, "sticky, as /tmp is"


@needs_root
@pytest.mark.promise("Two users with one cluster file have a folder each below a shared base, by `{user}` in work_directory.")
@pytest.mark.usefixtures("sources")
def test_two_operators_share_a_cluster_file(scratch: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "tiny.yaml"
    path.write_text(f"name: tiny\nscheduler: local\nnodes: [a, b]\nwork_directory: {scratch}/{{user}}\n")
    for uid in (VICTIM, STRANGER):
        monkeypatch.setattr(os, "getuid", lambda uid=uid: uid)
        cluster = read_cluster(path)
        assert cluster.work_directory == f"{scratch}/uid-{uid}"
        built = build.build_kernels(cluster, As(uid), f"{cluster.work_directory}/hpcq/run-1/tiny", {"hpcq-net"})
        assert Path(built["root"]).stat().st_uid == uid


CRONTAB = """\
#!/bin/sh
if [ "$1" = -l ]; then cat "$HOME/table" 2>/dev/null || { echo "no crontab for me" >&2; exit 1; }; else cat >"$HOME/table"; fi
"""


@needs_root
@pytest.mark.parametrize("kind", ["crontab", "systemd"])
@pytest.mark.promise("What a timer starts, nobody else can change, also with umask 002 and a group that all users share.")
def test_what_a_timer_starts_is_the_users_alone(place: Path, kind: str) -> None:
    home, programs = of(VICTIM, place / "home", 0o755, gid=TEAM), of(0, place / "programs", 0o755)
    for name, text in (("crontab", CRONTAB), ("systemctl", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    who = ["setpriv", f"--reuid={VICTIM}", f"--regid={TEAM}", "--clear-groups", "/bin/sh", "-c", 'umask 002; exec "$@"', "sh"]
    given = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "PYTHONPATH": str(REPOSITORY)}

    def schedule(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*who, sys.executable, "-P", "-m", "hpcq", "schedule", *words]
        return subprocess.run(command, cwd=home, env=given, capture_output=True, text=True, timeout=120, check=False)

    done = schedule("add", "night", "--when", "02:00", "--with", kind, "--", "kernels")
    assert done.returncode == 0, done.stderr
    assert schedule("tick", "night").returncode == 0
    made = [one for one in home.rglob("*") if one.name != "table"]
    inside = home / ".local" / "state" / "hpcq" / "schedule"
    assert len(made) > 5
    assert [one for one in made if one.stat().st_mode & 0o022 and not one.is_relative_to(inside)] == []
    assert inside.stat().st_mode & 0o077 == 0
    assert len(list(home.glob(".config/systemd/user/*"))) == (2 if kind == "systemd" else 0)
    inside.chmod(0o775)  # as an earlier hpcq made it
    done = schedule("tick", "night")
    assert done.returncode == 1
    assert f"{inside}: the group UNKNOWN can change what hpcq keeps there (mode 775)" in done.stderr


@pytest.mark.promise("Whatever the umask, nothing that hpcq makes is writable by everybody.")
def test_with_no_umask_nothing_is_writable_by_everybody(tmp_path: Path) -> None:
    """Nor does it need a variable of the environment: a service may be started without any."""
    command = 'umask 000; unset PATH; exec "$0" -m hpcq run demo'
    environment = {"HOME": str(tmp_path)}
    done = subprocess.run(
        ["/bin/bash", "-c", command, sys.executable], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    made = [one for one in tmp_path.rglob("*") if not one.is_symlink()]
    assert len(made) > 20
    assert [str(one) for one in made if one.stat().st_mode & 0o002] == []
