"""The house's rules that the code itself can prove: imports go down, and each heavy tool has one user."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

import pytest

from hpcq.errors import UserError
from hpcq.scheduler.kinds import DESCRIPTIONS, make
from hpcq.scheduler.types import SchedulerSettings
from hpcq.transport import Here
from tests import REPOSITORY

pytestmark = pytest.mark.fast

PACKAGE = REPOSITORY / "hpcq"

#: Longest matching prefix decides; docs/architecture.md draws the same picture.
FLOORS = {
    "hpcq.__main__": 13,
    "hpcq.cli": 12,
    "hpcq.runner": 11,
    "hpcq.reports": 10,
    "hpcq.exports": 10,
    "hpcq.analysis": 9,
    "hpcq.store": 8,
    "hpcq.run_folder": 7,
    "hpcq.imports": 7,
    "hpcq.verdict": 6,
    "hpcq.evidence": 6,
    "hpcq.planning": 6,
    "hpcq.own_folder": 6,
    "hpcq.definition": 5,
    "hpcq.judge": 4,
    "hpcq.localisation": 4,
    "hpcq.gate_kinds": 4,
    "hpcq.statistics": 4,
    "hpcq.scheduler": 4,
    "hpcq.described": 4,
    "hpcq.render": 3,
    "hpcq.kernels": 2,
    "hpcq.transport": 2,
    "hpcq.topology": 2,
    "hpcq.assets": 1,
    "hpcq.clock": 1,
    "hpcq.errors": 1,
    "hpcq.plugins": 1,
    "hpcq.shapes": 1,
    "hpcq.nodelist": 1,
    "hpcq.strangers": 1,
    "hpcq.units": 1,
    "hpcq.visible": 1,
    "hpcq.writer_lock": 2,
    "hpcq": 0,
}

#: outside module -> the only places that may import it
SINGLE_USERS = {
    "click": ("hpcq.cli", "hpcq.__main__"),
    "rich": ("hpcq.cli",),
    "sqlite3": ("hpcq.store",),
    "jinja2": ("hpcq.render",),
    "ruamel": ("hpcq.definition",),
    "pydantic": ("hpcq.definition",),
    "pydantic_core": ("hpcq.definition",),
    "subprocess": ("hpcq.transport",),
    "snakemake": (),
    "pyarrow": ("hpcq.exports",),
    "matplotlib": ("hpcq.reports.figures",),
}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def floor_of(module: str) -> int:
    fitting = [prefix for prefix in FLOORS if module == prefix or module.startswith(prefix + ".")]
    return FLOORS[max(fitting, key=len)]


@cache
def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def resolved(name: str, known: dict[str, Path]) -> str | None:
    """The module of this package that an import names, or None."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


@pytest.mark.heavy
def test_imports_go_down() -> None:
    known = modules()
    upward = []
    for module, path in known.items():
        for name in imports_of(path):
            target = resolved(name, known) if name.startswith("hpcq") else None
            if target and target != "hpcq" and floor_of(target) > floor_of(module):
                upward.append(f"{module} -> {target}")
    assert upward == []


def test_a_package_stands_on_one_floor() -> None:
    """A module with a floor of its own, below its package, would hide an import that goes up."""
    assert [name for name in FLOORS if name.count(".") > 1] == []


@pytest.mark.heavy
def test_one_user_each() -> None:
    strangers = []
    for module, path in modules().items():
        for name in imports_of(path):
            users = SINGLE_USERS.get(name.split(".", maxsplit=1)[0])
            if users is not None and not any(module == user or module.startswith(user + ".") for user in users):
                strangers.append(f"{module} imports {name}")
    assert strangers == []


def test_no_import_circles() -> None:
    known = modules()
    graph = {
        module: {target for name in imports_of(path) if name.startswith("hpcq") and (target := resolved(name, known))}
        - {"hpcq"}
        for module, path in known.items()
    }
    assert circle_of(graph) == ()


@pytest.mark.promise("What stands in a folder of hpcq forms no circle.")
def test_no_circles_among_what_stands_in_a_folder() -> None:
    """Whatever a folder holds, a file or a folder, is one thing here: two that import each other have no floors."""
    known = modules()
    for folder in sorted({name.rpartition(".")[0] for name in known if "." in name}):
        depth = folder.count(".") + 1
        graph: dict[str, set[str]] = {}
        for module, path in known.items():
            if module.startswith(f"{folder}."):
                targets = (resolved(name, known) or "" for name in imports_of(path) if name.startswith("hpcq"))
                inside = {target.split(".")[depth] for target in targets if target.startswith(f"{folder}.")}
                graph.setdefault(module.split(".")[depth], set()).update(inside)
        assert (folder, circle_of(graph)) == (folder, ())


def circle_of(graph: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The first way through the graph that comes back to where it was; empty if there is none."""
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> tuple[str, ...]:
        if module in trail:
            return (*trail, module)
        if module not in done:
            for target in sorted({*graph.get(module, ())} - {module}):
                if found := visit(target, (*trail, module)):
                    return found
            done.add(module)
        return ()

    return next((found for module in sorted(graph) if (found := visit(module, ()))), ())


@pytest.mark.promise("No two files of the kernels include each other.")
def test_no_include_circles() -> None:
    """A C file and its header are one thing here: two that each include the other's header are a circle."""
    root = REPOSITORY / "kernels" / "c"
    graph: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.[ch]")):
        unit = str(path.relative_to(root).with_suffix(""))
        graph.setdefault(unit, set()).update(re.findall(r'^#include "(.*)\.h"$', path.read_text(), re.MULTILINE))
    assert graph["engine/phase"] >= {"engine/precision"}
    assert circle_of(graph) == ()


@pytest.mark.promise("Folders of the lab form no circle.")
def test_folders_of_the_lab_form_no_circle() -> None:
    """The lab's services stand on its machines, not the other way round."""
    graph: dict[str, set[str]] = {}
    names = {path.stem for path in (REPOSITORY / "lab").glob("*.py")}
    for path in sorted((REPOSITORY / "lab").rglob("*.py")):
        unit = "services" if path.parent.name == "services" else path.stem
        found = {name.partition(".")[0] for name in imports_of(path)}
        graph.setdefault(unit, set()).update(found & (names | {"services"}))
    assert "services" in graph["whole"]
    assert circle_of(graph) == ()


@pytest.mark.heavy
def test_sql_stands_in_store_and_analysis_only() -> None:
    strangers = []
    for module, path in modules().items():
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        names = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
        if names & {"execute", "executemany", "executescript"} and not module.startswith(("hpcq.store", "hpcq.analysis")):
            strangers.append(module)
    assert strangers == []


#: Words of each scheduler, and the files outside its package that may say them: the list of kinds, and help with examples.
WORDS = {
    "slurm": ("slurm|sbatch|scontrol|squeue|sinfo|sacct|scancel|srun|scrontab", {"cli/main.py", "cli/lab.py"}),
    "torque": ("torque", set()),
    "pbs": (r"\bpbs|qsub|qstat|qdel|qalter|qrls|pbsnodes|pbsdsh|pbs_", {"definition/files/campaign.py"}),
}
#: Schedulers whose commands have the same names.
RELATIVES = {"pbs": ("torque",), "torque": ("pbs",)}


@pytest.mark.heavy
@pytest.mark.promise("Nothing outside a scheduler's package knows its words.")
@pytest.mark.parametrize("kind", sorted(WORDS))
def test_a_scheduler_is_one_package(kind: str) -> None:
    """Whoever adds a scheduler writes one module or package: nothing outside knows the words of another one."""
    words, examples = WORDS[kind]
    strangers = [
        f"{name}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in {".py", ".sh", ".j2"}
        and (name := path.relative_to(PACKAGE).as_posix()) not in {"scheduler/kinds.py", *examples}
        and not name.startswith(tuple(f"scheduler/{one}{end}" for one in (kind, *RELATIVES.get(kind, ())) for end in "/."))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(words, line, re.IGNORECASE)
    ]
    assert strangers == []


def test_the_example_of_a_scheduler_is_the_list_of_kinds() -> None:
    """The diff of docs/extending.md shows lines that are there."""
    page = (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8")
    shown = [line.strip()[1:].strip() for line in page.splitlines() if re.match(r"    [ +](?!\+\+)", line) and "torque" in line]
    lines = {line.strip() for line in (PACKAGE / "scheduler" / "kinds.py").read_text(encoding="utf-8").splitlines()}
    added = [line for line in shown if "import" in line or "DESCRIPTION" in line]
    assert len(added) == 2, shown
    assert set(added) <= lines


def test_nothing_asks_which_kind_of_scheduler_it_has() -> None:
    asking = re.compile(r"\.scheduler\s*(==|!=|in)\s|isinstance\([^)]*(Slurm|Pbs|Local)\b")
    found = [path.name for path in modules().values() if asking.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_every_kind_of_scheduler_has_its_module_and_its_head() -> None:
    templates = PACKAGE.parent / "templates"
    for kind, description in DESCRIPTIONS.items():
        assert f"hpcq.scheduler.{kind}" in modules()
        assert description.kind == kind
        head = (templates / description.head_template).read_text(encoding="utf-8")
        head += "".join((templates / name).read_text() for name in re.findall(r'{% include "(\w+\.start\.j2)"', head))
        assert "HPCQ_NODE" in head, "kernels read their node's name from it"


@pytest.mark.promise("An unknown kind of scheduler is refused with the list of kinds.")
def test_an_unknown_kind_is_refused_with_the_list_of_kinds() -> None:
    with pytest.raises(UserError, match=f"'lsf': must be one of {', '.join(DESCRIPTIONS)}"):
        make("lsf", Here(), SchedulerSettings())
