"""What hpcq must know about a kind of scheduler before it talks to one. Plain data, one `Description` per package.

hpcq checks a cluster file against it: keys, defaults and directives. The transport learns from it which environment
variables of the person's shell may reach the scheduler's commands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class KeyForm(StrEnum):
    """Which form of value a scheduler's key in the cluster file takes."""

    #: One word without blanks.
    WORD = "word"
    #: One word, or several: a YAML list, or joined with commas.
    WORDS = "words"
    #: Features joined with & and |.
    FEATURES = "features"


class SharedKey(StrEnum):
    """Keys of the cluster file that hpcq defines and that a kind of scheduler may or may not take."""

    #: Names of the nodes that the scheduler simulates. hpcq asks all other schedulers for their nodes.
    NODES = "nodes"
    LAUNCHER = "launcher"
    EXTRA_DIRECTIVES = "extra_directives"
    #: Variables that select the instance to which the commands talk.
    INSTANCE = "instance"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the cluster file that belongs to a kind of scheduler.

    fills: the field of `definition.model.Cluster` that it sets: partition, account, qos, reservation or constraint.
    None: a key that only this scheduler has. It is in `Cluster.extra` under its own name.
    allowed: the words that it takes; empty: any.
    """

    name: str
    fills: str | None
    help: str
    form: KeyForm = KeyForm.WORD
    allowed: tuple[str, ...] = ()
    #: Returns why one of its words is refused; None if the word is fine.
    check: Callable[[str], str | None] | None = None


@dataclass(frozen=True, slots=True)
class TimerTable:
    """A table like crontab's that the scheduler itself keeps.

    command: edits it, with -l and -. lines: precede each entry.
    """

    command: str
    lines: tuple[str, ...] = ()


#: Returns what is wrong with keys that exclude each other: the key, and the words.
KeysCheck = Callable[[Mapping[str, object]], Sequence[tuple[str, str]]]
#: Returns why hpcq refuses a line of `extra_directives`; None if the line is fine.
DirectiveCheck = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Description:
    """One kind of scheduler. kind: the word in cluster files. title: its name for people."""

    kind: str
    title: str
    keys: tuple[Key, ...]
    takes: frozenset[SharedKey]
    #: Shell text that succeeds on a machine from which this scheduler takes jobs; empty: on every machine.
    found_by: str
    #: The template of the head of job scripts, below templates/.
    head_template: str
    default_mpi_launch: tuple[str, ...]
    #: The interface under test if the file names none; None: the file must name one.
    default_interface: str | None = None
    default_nodes: tuple[str, ...] = ()
    poll_interval_s: float = 5.0
    poll_interval_min_s: float = 1.0
    #: How long a shared file system may take to show a job's last write: NFS caches attributes for up to 60 s.
    filesystem_delay_s: float = 90.0
    #: Its jobs run on this machine only, without ssh or a shared folder.
    here_only: bool = False
    #: Prefixes of variables of the person's shell that must not reach its commands.
    scrubbed_prefixes: tuple[str, ...] = ()
    #: Variables with these prefixes that hpcq keeps: they select the instance or prove who asks.
    kept_variables: frozenset[str] = frozenset()
    #: Variables that hpcq sets for its commands, whatever the site or the person sets.
    assigned_variables: Mapping[str, str] = field(default_factory=dict)
    #: The variables that `instance:` of the cluster file may set.
    instance_variables: tuple[str, ...] = ()
    check_directive: DirectiveCheck = lambda _: None
    check_keys: KeysCheck = lambda _: ()
    #: Keys of the cluster file, with values, that leave out standing options of a job: `hpcq cluster check` tries them in
    #: this order where a site takes no job as it is.
    other_forms: tuple[Mapping[str, str], ...] = ()
    timer_table: TimerTable | None = None

    def key(self, name: str) -> Key | None:
        """Return its own key of that name."""
        return next((one for one in self.keys if one.name == name), None)

    def key_names(self) -> list[str]:
        """Return the keys that it takes beyond those of every cluster file."""
        return [*(one.name for one in self.keys), *sorted(one.value for one in self.takes)]


def directive_check(
    *, own: Sequence[str], keys: Mapping[str, str], refused: Mapping[str, str], long_is_unique_prefix: bool = False
) -> DirectiveCheck:
    """Return a check of lines such as `--licenses=fs`.

    own: options that hpcq writes into every job. keys: option -> the key of the cluster file to use instead.
    refused: option -> why. An option may stand there with the name of what it sets, like `-l select`: that goes first.
    long_is_unique_prefix: the scheduler reads `--part` as `--partition`, so the check does, too.
    """
    known = [*own, *keys, *refused]

    def whole(word: str) -> str:
        meant = [one for one in known if long_is_unique_prefix and len(word) > 3 and one.startswith(word) and one[:2] == "--"]
        sure = len(meant) == 1 or (meant and all(one in refused for one in meant))
        return meant[0] if sure and word not in known else word

    def check(line: str) -> str | None:
        if line.startswith("#"):
            return "write the option alone, like --licenses=fs, without the # word before it"
        if not line.startswith("-"):
            return "must be an option of the submit command, like --licenses=fs"
        word = re.split(r"[=\s]", line, maxsplit=1)[0]
        options = [whole(word)]
        if not word.startswith("--"):
            # -pmain means the same as -p main, and -lselect=2,mem=1gb sets two things.
            names = [re.split(r"[=:]", one, maxsplit=1)[0].strip() for one in line[2:].split(",")]
            options = [*(f"{word[:2]} {name}" for name in names), *options, word[:2]]
        for option in options:
            if option in keys:
                return f"the key {keys[option]} of this file says it"
            if option in refused:
                return refused[option]
            if option in own:
                return f"hpcq sets {option} itself for every job"
        return None

    return check
