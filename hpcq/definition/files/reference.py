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
from hpcq.definition.files.campaign import (
    NAMING_KEYS,
    CampaignFile,
    CoverageSection,
    NodesSection,
    PairsSection,
    ReservationSection,
    TestSection,
)
from hpcq.definition.files.cluster import ClusterFile, CompilerSection, ConnectionSection, MpiSection
from hpcq.definition.files.gates import GateSection
from hpcq.definition.files.links import LinkSection
from hpcq.definition.find import all_kernels
from hpcq.definition.model import Pattern
from hpcq.gate_kinds import gate_kinds
from hpcq.kernels import CPUS_PATTERN, NAME_PATTERN, Kernel, Option, OptionType

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
    "kernel_said": kernel_file.SaidSection,
    "kernel_server": kernel_file.ServerSection,
    "kernel_ready": kernel_file.ReadySection,
    "kernel_failure": kernel_file.FailureSection,
    "kernel_title": kernel_file.TitleSection,
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


# ----------------------------------------------------------------------------------------------------------------------
# JSON Schema of both kinds of file, for editors: generated from the classes that check the files.
#
# An editor that knows YAML schemas completes keys, kernels and parameters, and shows their help:
#
#     # yaml-language-server: $schema=campaign.schema.json

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def campaign_schema() -> dict[str, Any]:
    """The schema of a campaign file, with the kernels known here and their parameters."""
    schema = {"$schema": _DIALECT, **CampaignFile.model_json_schema(by_alias=True)}
    definitions = schema["$defs"]
    definitions["PairsSection"] = _with_short_pairs(definitions["PairsSection"])
    reservation = definitions["NodesSection"]["properties"]["reservation"]
    reservation["anyOf"].insert(0, {"type": "string"})
    test = definitions["TestSection"]
    known, _ = all_kernels()
    test["properties"]["kernel"]["enum"] = list(known)
    test["allOf"] = [_parameters_of(kernel) for kernel in known.values()]
    return schema


def cluster_schema() -> dict[str, Any]:
    """The schema of a cluster file."""
    schema = {"$schema": _DIALECT, **ClusterFile.model_json_schema(by_alias=True)}
    schema["properties"]["connection"]["anyOf"].insert(0, {"const": "local"})
    schema["properties"]["environment"]["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    return schema


def _with_short_pairs(section: dict[str, Any]) -> dict[str, Any]:
    """Add the short forms `pairs: all` and `pairs: {rounds: 3}` to the long one."""
    short = [{"required": [key]} for key in ("pattern", *NAMING_KEYS)]
    long_form = {**section, "anyOf": short}
    long_form.pop("required", None)
    words = {"enum": [Pattern.ALL.value, Pattern.RING.value]}
    return {"description": section["description"], "anyOf": [words, long_form]}


def _parameters_of(kernel: Kernel) -> dict[str, Any]:
    """For this kernel, allow these parameters and no others."""
    single = {option.name: _value_of(option) for option in kernel.options}
    lists = {name: {"type": "array", "minItems": 1, "items": value} for name, value in single.items()}
    columns = {"type": "object", "additionalProperties": False, "properties": lists}
    return {
        "if": {"properties": {"kernel": {"const": kernel.name}}, "required": ["kernel"]},
        "then": {
            "properties": {
                "parameters": {"additionalProperties": False, "properties": single},
                "matrix": {"additionalProperties": False, "properties": lists},
                "zip": {"anyOf": [columns, {"type": "array", "items": columns}]},
            }
        },
    }


def _value_of(option: Option) -> dict[str, Any]:
    about = {"description": option.help, "default": option.default}
    if option.type is OptionType.BOOLEAN:
        return {**about, "type": "boolean"}
    if option.type is OptionType.CHOICE:
        return {**about, "enum": list(option.choices)}
    if option.type is OptionType.NAME:
        return {**about, "type": "string", "pattern": f"^{NAME_PATTERN}$"}
    if option.type is OptionType.CPUS:
        return {**about, "type": ["string", "integer"], "pattern": f"^({CPUS_PATTERN})$", "minimum": 0}
    if option.type is OptionType.WORDS:
        return {**about, "type": "string"}
    bounds = {"minimum": option.minimum, "maximum": option.maximum}
    return {**about, "type": ["number", "string"], **{key: bound for key, bound in bounds.items() if bound is not None}}
