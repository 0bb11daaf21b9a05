"""What a command line of a description may consist of, before any template is filled in.

No shell reads a command: a pipe, a redirection or a quote would reach the program as an argument. Refused here, they
are no surprise on a node.
"""

from __future__ import annotations

import re

from hpcq.definition.foreign.sections import KernelFile
from hpcq.definition.yamlfile import Document, Place
from hpcq.described_kernel import Shape

_BRACES = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_SHELL_WORD = re.compile(r"[|&;]+|\d*[<>]+(&\d)?")
_SHELL_HINT = "no shell reads it: put pipes, redirections and several commands into a script, and name that as the program"
#: Known only while a server listens.
_IN_THE_JOB = ("address", "client_address", "port")
#: Names in templates that an option would hide, or that would hide an option.
TAKEN = (*_IN_THE_JOB, "program", "size_sum")


def check_commands(file: KernelFile, document: Document) -> None:
    """Complain about commands that would start something else than their author thinks."""
    _check_command(("command",), file.command, document)
    if file.server is not None:
        _check_command(("server", "command"), file.server.command, document)
    if file.version:
        _check_command(("version",), file.version, document)
    _check_names(("version",), file.version, "no server listens yet", document)
    if file.shape != Shape.CLIENT_SERVER.value:
        _check_names(("command",), file.command, f"of {file.shape} there is no server", document)
    for name in file.options:
        if name in TAKEN:
            said = f"{name} means something in templates already: allowed is another name"
            document.complain(("options", name), said, at_key=True)


def _check_command(place: Place, command: str, document: Document) -> None:
    plain = _BRACES.sub("x", command)
    if not plain.split():
        document.complain(place, "no words: allowed is a program and its arguments")
        return
    shell = [word for word in plain.split() if _SHELL_WORD.fullmatch(word)]
    if shell:
        document.complain(place, f"{shell[0]}: allowed are a program and its arguments", _SHELL_HINT)
    quoted = [word for word in plain.split() if word[0] in "'\"" or word[-1] in "'\""]
    if quoted:
        hint = "hpcq splits at blanks and takes quotes as they are; a value with blanks can be an option, or stand in {{ }}"
        document.complain(place, f"{quoted[0]}: begins or ends with a quote: allowed are words without quotes", hint)


def _check_names(place: Place, template: str, why: str, document: Document) -> None:
    used = {
        word
        for braces in _BRACES.findall(template)
        for word in re.findall(r"[a-z_]+", re.sub(r"'[^']*'|\"[^\"]*\"", "", braces))
    }
    for name in _IN_THE_JOB:
        if name in used:
            document.complain(place, f"{name} is not known here: {why}: allowed are the options and program")
