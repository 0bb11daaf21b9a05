"""Run several commands as one script. Marks separate their outputs. Shell text, and how to read its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from hpcq.errors import SchedulerError
from hpcq.transport import Completed

_Item = TypeVar("_Item")

#: submit FOLDER TAG COMMAND…: prints "@submitted<TAB>tag<TAB>rc<TAB>standard output<TAB>standard error".
#: It also writes the output to FOLDER/submitted. submit.err without submit.rc there: the command has not ended.
#: After the first refusal because of a limit it does not try the rest (rc -1), because the scheduler would refuse those
#: as well.
SUBMIT = r"""
full=
one_line() { tr '\n\t\r' '   ' | sed 's/ *$//'; }
submit() {
    folder=$1; tag=$2; shift 2
    [ -z "$full" ] || { printf '@submitted\t%s\t-1\t\tnot tried: %s\n' "$tag" "$full"; return; }
    [ ! -e "$folder/claim" ] || { printf '@submitted\t%s\t255\t\twithdrawn before it was submitted\n' "$tag"; return; }
    answer=$(cd "$folder" && exec "$@" 2>"$folder/submit.err"); rc=$?
    echo "$rc" >"$folder/submit.rc"
    words=$(one_line <"$folder/submit.err")
    if [ "$rc" -eq 0 ]; then
        printf '%s\n' "$answer" >"$folder/submitted"
    else
        case $answer$words in LIMITED) full=$words ;; esac
    fi
    printf '@submitted\t%s\t%s\t%s\t%s\n' "$tag" "$rc" "$(printf '%s' "$answer" | one_line)" "$words"
}
"""

_PART = "@hpcq-part"


def parts_script(parts: Mapping[str, str]) -> str:
    """Join several commands. Each marks where its part begins on both outputs, and prints its exit code at the end."""
    lines = []
    for name, command in parts.items():
        lines.append(f"printf '\\n{_PART} {name}\\n'; printf '\\n{_PART} {name}\\n' >&2")
        lines.append(f"{{ {command}\n}}; printf '\\n{_PART} rc %s\\n' \"$?\"")
    return "\n".join(lines)


def parts_of(done: Completed, wanted: Iterable[str]) -> dict[str, Completed]:
    """Return what each part printed. Raises SchedulerError when one is missing: the answer was cut off."""
    texts, codes, last = {}, {}, ""
    for part in done.text.split(f"\n{_PART} ")[1:]:
        head, _, text = part.partition("\n")
        if head.startswith("rc "):
            codes[last] = int(head[3:])
        else:
            last = head
            texts[head] = text
    errors = {head: text for head, _, text in (part.partition("\n") for part in done.stderr.split(f"\n{_PART} ")[1:])}
    broken = [name for name in wanted if name not in codes]
    if broken:
        raise SchedulerError(f"{broken[0]}: the answer broke off: {done.stderr.strip()[-200:] or 'nothing was said'}")
    return {name: Completed(codes[name], texts[name].encode(), errors.get(name, "")) for name in wanted}


def chunks(items: Sequence[_Item], size: int) -> Iterable[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def submitted_rows(text: str) -> dict[str, Completed]:
    """Read what SUBMIT printed: tag -> how its submit command ended. An exit code of -1: the script did not try it."""
    rows = {}
    for line in text.split("\n"):
        fields = line.split("\t", 4)
        if len(fields) == 5 and fields[0] == "@submitted" and fields[2].lstrip("-").isdecimal():
            _, tag, code, out, err = fields
            rows[tag] = Completed(int(code), out.encode(), err)
    return rows
