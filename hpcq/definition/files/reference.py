"""The tables of docs/campaigns.md and docs/described-kernels.md, generated from the classes that check the files.

python -m hpcq.definition.files.reference docs/campaigns.md      rewrite the tables between their markers
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from hpcq.definition import kernel_file
from hpcq.definition.checking import BudgetSection, Section, section_in
from hpcq.definition.files.campaign import CampaignFile, CoverageSection, NodesSection, PairsSection, TestSection
from hpcq.definition.files.cluster import ClusterFile, CompilerSection, ConnectionSection, MpiSection
from hpcq.definition.files.gates import GateSection
from hpcq.definition.files.links import LinkSection
from hpcq.definition.files.reservations import ReservationSection
from hpcq.gate_kinds import gate_kinds

#: The tables by the name in their markers.
SECTIONS: dict[str, Any] = {
    "campaign": CampaignFile,
    "nodes": NodesSection,
    "reservation": ReservationSection,
    "pairs": PairsSection,
    "coverage": CoverageSection,
    "tests": TestSection,
    "gates": GateSection,
    "links": LinkSection,
    "budget": BudgetSection,
    "cluster": ClusterFile,
    "connection": ConnectionSection,
    "compiler": CompilerSection,
    "mpi": MpiSection,
    "kernel": kernel_file.KernelFile,
    "kernel_option": kernel_file.OptionSection,
    "kernel_server": kernel_file.ServerSection,
    "kernel_ready": kernel_file.ReadySection,
    "kernel_failure": kernel_file.FailureSection,
    "kernel_sends": kernel_file.SendsSection,
    "kernel_sizes": kernel_file.SizesSection,
    "kernel_table": kernel_file.TableSection,
    "kernel_metric": kernel_file.MetricSection,
    "kernel_same_as": kernel_file.PeerSection,
}

_MARKED = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def table(section: type[Section]) -> str:
    """One Markdown table: key, what it holds, default, meaning."""
    rows = ["| key | holds | default | meaning |", "|---|---|---|---|"]
    for name, field in section.model_fields.items():
        cells = [f"`{field.alias or name}`", _holds(section, name, field), _default(field), field.description or ""]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def with_tables(text: str) -> str:
    """The page with all tables between their markers rewritten."""
    return _MARKED.sub(lambda found: found[1] + _table(found[2]) + found[3], text)


def _table(name: str) -> str:
    return gate_kind_table() if name == "gate_kinds" else table(SECTIONS[name])


def gate_kind_table() -> str:
    """What each kind of gate compares with, and what it does if there is nothing to compare with."""
    rows = [f"| `{kind.written}` | {kind.meaning} | {kind.missing} |\n" for kind in gate_kinds().values()]
    return "| against | the reference is | there is none where |\n|---|---|---|\n" + "".join(rows)


def _holds(section: type[Section], name: str, field: FieldInfo) -> str:
    annotation = next(one.__annotations__[name] for one in section.__mro__ if name in one.__annotations__)
    shown = annotation if isinstance(annotation, str) else str(annotation)
    named = {
        "Seconds": "duration",
        "Walltime": "duration with unit",
        "Words": "words",
        "Names": "names",
        "NodeLists": "node lists",
        "Lines": "texts",
        "Modules": "texts",
        "Somes": "texts",
        "Features": "features",
        "Template": "number or template",
        "Pattern": "regular expression",
    }
    for word, meaning in named.items():
        if re.search(rf"\b{word}\b", shown):
            return meaning
    special = {"seed": "whole number or each_run", "ports": "FIRST-LAST", "exclude": "list of keys with values"}
    special |= {"allocation": "`pair`, `whole` or `group of N`", "concurrency": "`rounds`, `alone` or a list of both"}
    special |= {"connection": "`local` or keys with values", "zip": "keys with values, or a list of such"}
    special |= {"minimum": "quantity", "maximum": "quantity", "list": "list of [client, server]"}
    special |= {"nodes": "count or names"} if section is ClusterFile else {"pairs": "`all`, `ring` or keys with values"}
    special |= {} if section is ClusterFile else {"reservation": "a name, or keys with values"}
    return special.get(field.alias or name) or _type_words(field.annotation)


def _type_words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_words(inner[0])
    if origin in {Union, UnionType}:
        return " or ".join(dict.fromkeys(_type_words(one) for one in inner if one is not type(None)))
    if section_in(annotation) is not None:
        return "list of keys with values" if origin is list else "keys with values"
    if origin in {list, dict}:
        return "list" if origin is list else "keys with values"
    return _TYPES.get(annotation) or ", ".join(f"`{word}`" for word in inner)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is PydanticUndefined or value is None or value in ([], {}, "") or isinstance(value, Section):
        return ""
    if isinstance(value, list):
        return f"`{' '.join(map(str, value))}`"
    return f"{value:g}" if isinstance(value, float) else f"`{value}`" if isinstance(value, str) else str(value)


def main(arguments: list[str]) -> None:
    """Rewrite the tables of the named pages."""
    for argument in arguments:
        page = Path(argument)
        page.write_text(with_tables(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
