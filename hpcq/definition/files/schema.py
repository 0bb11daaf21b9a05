"""JSON Schema of both kinds of file, for editors: generated from the classes that check the files.

An editor that knows YAML schemas completes keys, kernels and parameters, and shows their help:

    # yaml-language-server: $schema=campaign.schema.json
"""

from __future__ import annotations

from typing import Any

from hpcq.definition.files.campaign import NAMING_KEYS, CampaignFile
from hpcq.definition.files.cluster import ClusterFile
from hpcq.definition.model import Pattern
from hpcq.kernels import CPUS_PATTERN, NAME_PATTERN, Kernel, Option, OptionType, kernels

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def campaign_schema() -> dict[str, Any]:
    """The schema of a campaign file, with the kernels known here and their parameters."""
    schema = {"$schema": _DIALECT, **CampaignFile.model_json_schema(by_alias=True)}
    definitions = schema["$defs"]
    definitions["PairsSection"] = _with_short_pairs(definitions["PairsSection"])
    reservation = definitions["NodesSection"]["properties"]["reservation"]
    reservation["anyOf"].insert(0, {"type": "string"})
    test = definitions["TestSection"]
    known = kernels()
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
