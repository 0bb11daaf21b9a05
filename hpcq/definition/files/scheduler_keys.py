"""The keys of a cluster file that depend on its scheduler, and the check that this scheduler takes them.

hpcq.scheduler.kinds.DESCRIPTIONS  ->  fields of the cluster file (all kinds together), and checks for the kind that it names
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from hpcq.definition.checking import Features, Line, Word, refuse
from hpcq.definition.yamlfile import Document, shown
from hpcq.scheduler.description import Description, Key, KeyForm, SharedKey
from hpcq.scheduler.kinds import DESCRIPTIONS


def _joined(value: object) -> object:
    """A YAML list of words as the scheduler writes it, joined by commas."""
    if not isinstance(value, list):
        return value
    bad = next((one for one in value if not isinstance(one, str) or not one or "," in one), None)
    if bad is not None or not value:
        raise refuse(f"{shown(value)}: allowed are one word, or a list of words")
    return ",".join(value)


def _no_gaps(value: str) -> str:
    if not all(value.split(",")):
        raise refuse(f"{shown(value)}: allowed are one word, or words joined by commas, none of them empty")
    return value


_ONE_OR_MORE: Any = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
_FORMS: dict[KeyForm, Any] = {
    KeyForm.WORD: Word,
    KeyForm.WORDS: Annotated[Word, AfterValidator(_no_gaps), BeforeValidator(_joined), _ONE_OR_MORE],
    KeyForm.FEATURES: Features,
}


def scheduler_fields() -> dict[str, Any]:
    """The fields that pydantic adds to the cluster file: name -> (type, field)."""
    by_name: dict[str, list[tuple[Description, Key]]] = {}
    for description in DESCRIPTIONS.values():
        for key in description.keys:
            by_name.setdefault(key.name, []).append((description, key))
    fields: dict[str, Any] = {
        "scheduler": (Literal[tuple(DESCRIPTIONS)], Field(description=_kinds_help())),
    }
    for name, users in by_name.items():
        helps = dict.fromkeys(key.help for _, key in users)
        kinds = ", ".join(description.kind for description, _ in users)
        fields[name] = (_FORMS[users[0][1].form] | None, Field(default=None, description=f"{' '.join(helps)} With {kinds}."))
    variables = ", ".join(name for one in DESCRIPTIONS.values() for name in one.instance_variables)
    fields["instance"] = (
        dict[str, Line],
        Field(default={}, description=f"Variables that select which instance the scheduler's commands talk to: {variables}."),
    )
    return fields


def filled(file: Any, description: Description) -> dict[str, Any]:
    """Values of this scheduler's own keys, by fields of `Cluster`; the others are None."""
    given: dict[str, Any] = dict.fromkeys(("partition", "account", "qos", "reservation", "constraint"))
    values = {key.name: getattr(file, key.name) for key in description.keys}
    named = {key.fills: values[key.name] for key in description.keys if key.fills is not None}
    extra = {key.name: values[key.name] for key in description.keys if key.fills is None and values[key.name] is not None}
    return {**given, **named, "extra": extra}


def check_scheduler_keys(document: Document, description: Description) -> None:
    """Report keys of other kinds that this one lacks, and check its directives and variables."""
    data, kind = document.data, description.kind
    taken = set(description.key_names())
    known = {key.name for one in DESCRIPTIONS.values() for key in one.keys} | {one.value for one in SharedKey}
    for name in data:
        if name in known - taken:
            others = [one.kind for one in DESCRIPTIONS.values() if name in one.key_names()]
            who = f"{' and '.join(others)} {'has' if len(others) == 1 else 'have'}"
            has = ", ".join(description.key_names()) or "none of its own"
            words = f"scheduler {kind} has no such key, {who}: the keys that {kind} has are {has}"
            document.complain((name,), words, at_key=True)
    for key in description.keys:
        value = data.get(key.name)
        if key.allowed and isinstance(value, str) and value not in key.allowed:
            document.complain((key.name,), f"{shown(value)}: allowed are {', '.join(key.allowed)}")
    lines = data.get("extra_directives") if SharedKey.EXTRA_DIRECTIVES in description.takes else None
    for place, line in enumerate(lines if isinstance(lines, list) else ()):
        words_against = description.check_directive(line) if isinstance(line, str) else None
        if words_against is not None:
            document.complain(("extra_directives", place), f"{shown(line)}: {words_against}")
    instance = data.get("instance") if SharedKey.INSTANCE in description.takes else None
    for name in instance if isinstance(instance, dict) else ():
        if name not in description.instance_variables:
            allowed = ", ".join(description.instance_variables)
            document.complain(("instance", name), f"allowed are {allowed}", at_key=True)


def _kinds_help() -> str:
    return ", ".join(f"{one.kind} ({one.title})" for one in DESCRIPTIONS.values()) + "."
