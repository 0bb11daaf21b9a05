"""Templates to text; the only user of Jinja2.

Hides strict names (a misspelt variable is an error, never an empty string), quoting for the shell and for scheduler
directives, and escaping in HTML.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcq import assets, plugins, units
from hpcq.errors import HpcqError, UserError
from hpcq.transport import quote
from hpcq.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment, Template

#: What a launcher line of a cluster file may name, and the shell text that replaces it in a job script.
_PLACEHOLDERS = {
    "{node}": '"$node"',
    "{client}": '"$CLIENT"',
    "{server}": '"$SERVER"',
    "{nodes}": '"$LIST"',
    "{count}": '"$COUNT"',
    "{hostfile}": '"$FOLDER/ranks"',
}

_PLAIN_DIRECTIVE = re.compile(r"[A-Za-z0-9_.,:/@%+=\[\]-]+")


def render(template_name: str, context: Mapping[str, Any]) -> str:
    """The text of `templates/<template_name>` for `context`.

    Templates whose names end in .html.j2 are escaped for HTML. Raises HpcqError if the context does not fit.
    """
    from jinja2 import TemplateError

    try:
        return _environment(assets.templates(), page=".html" in template_name).get_template(template_name).render(**context)
    except TemplateError as error:
        raise HpcqError(f"templates/{template_name}: {error}", "the template uses a name that hpcq does not give it") from error


def render_text(text: str, context: Mapping[str, Any], where: str) -> str:
    """A small template that a person wrote into the file `where`. Raises UserError that names file and template.

    It runs in Jinja2's sandbox, without loops, calls and large powers: a file from somebody else can compute words, and
    nothing more, and is done at once.
    """
    from jinja2 import TemplateError

    try:
        return _small_template(text).render(**context)
    except (TemplateError, ArithmeticError, TypeError, ValueError, RecursionError, SyntaxError, MemoryError) as error:
        hint = f"names it may use are {', '.join(context)}"
        raise UserError(f"{where}: {text}: {error}: must be a template over the options", hint) from None


def shell_word(value: object) -> str:
    """One word of a shell script, quoted whatever it contains; numbers and booleans in their JSON form."""
    return quote(value if isinstance(value, str) else json.dumps(value))


def directive_value(value: object) -> str:
    """The value of a scheduler directive line. Raises UserError if no quoting can express it."""
    text = str(value)
    if "\n" in text or "\r" in text or "\0" in text:
        raise UserError(f"{text!r}: a line break: a directive is one line", "remove the line break from the cluster file")
    if _PLAIN_DIRECTIVE.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def yaml_word(value: str) -> str:
    """A text in a YAML file, that is read back as this text: plain where that is safe, else in quotes."""
    is_plain = re.fullmatch(r"[A-Za-z/][A-Za-z0-9_./-]*", value) and value.lower() not in _YAML_WORDS
    return value if is_plain else json.dumps(value)


#: What YAML 1.1 reads as a truth value, or as nothing.
_YAML_WORDS = frozenset({"yes", "no", "on", "off", "true", "false", "null", "y", "n"})


def launch_word(value: str) -> str:
    """One word of a launcher line: quoted, except for the placeholders of the job script, which the shell fills in."""
    pieces = re.split(r"(\{(?:node|client|server|nodes|count|hostfile)\})", value)
    return "".join(_PLACEHOLDERS.get(piece, quote(piece) if piece else "") for piece in pieces) or "''"


#: What a small template may consist of. A loop, a call, or an assignment that doubles a text could go on for ever.
_SMALL_NODES = frozenset({
    *("Template", "Output", "TemplateData", "Name", "Const", "Tuple", "List", "Keyword", "If", "CondExpr", "Filter", "Test"),
    *("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow", "Neg", "Pos", "Not", "And", "Or", "Compare", "Operand", "Concat"),
})  # fmt: skip
_SMALL_FILTERS = frozenset({"int", "float", "abs", "lower", "upper", "length", "default", "min", "max"})
_SMALL_TEXT_MAX = 4000
_SMALL_NUMBER_MAX = 1e18
_SMALL_POWER_MAX = 64


@functools.lru_cache(maxsize=256)
def _small_template(text: str) -> Template:
    """Raise ValueError for a template that could compute without end."""
    from jinja2 import nodes

    sandbox = _sandbox()
    if len(text) > _SMALL_TEXT_MAX:
        raise ValueError(f"{len(text)} characters are too many: {_SMALL_TEXT_MAX} are allowed")
    for node in sandbox.parse(text).find_all(nodes.Node):
        what = type(node).__name__
        name = node.name if isinstance(node, nodes.Filter) else None
        if what not in _SMALL_NODES and not isinstance(node, nodes.Helper):
            raise ValueError(f"{what.lower()}: only values, operators and if may stand here")
        if name is not None and name not in _SMALL_FILTERS:
            raise ValueError(f"the filter {name}: must be one of {', '.join(sorted(_SMALL_FILTERS))}")
    return sandbox.from_string(text)


@functools.cache
def _sandbox() -> Environment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    class Bounded(SandboxedEnvironment):
        """Refuses operators whose result could be larger than any number or word of a command."""

        intercepted_binops = frozenset({"*", "**", "%"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
                raise TypeError(f"{operator} takes two numbers")
            if max(abs(left), abs(right)) > _SMALL_NUMBER_MAX or (operator == "**" and abs(right) > _SMALL_POWER_MAX):
                raise OverflowError(f"{operator} of numbers that are too large")
            found = super().call_binop(context, operator, left, right)
            if abs(found) > _SMALL_NUMBER_MAX:
                raise OverflowError(f"{operator} gives a number that is too large")
            return found

    return Bounded(undefined=StrictUndefined, autoescape=False)


def with_code(text: str) -> str:
    """Text for a page in which what stands between backticks is code, as in the documentation."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before


def _shown(value: object) -> object:
    """A value for a page, made visible; what a template made of it (Markup) stays markup."""
    return type(value)(visible(value)) if isinstance(value, str) else value


@functools.cache
def _environment(folder: Path, *, page: bool) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([folder, *(one.folder for one in plugins.plugins(plugins.SCHEDULERS) if one.folder)]),
        undefined=StrictUndefined,
        autoescape=lambda name: bool(name) and ".html" in str(name),  # noqa: S701 - shell scripts are quoted, pages escaped
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown if page else None,
    )
    environment.filters["q"] = shell_word
    environment.filters["directive"] = directive_value
    environment.filters["y"] = yaml_word
    environment.filters["launch_word"] = launch_word
    environment.filters["code"] = with_code
    environment.filters["human"] = units.human
    environment.filters["human_of"] = lambda value, name: units.human_of(name, value)
    return environment
