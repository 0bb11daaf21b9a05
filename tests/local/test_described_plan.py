"""A campaign of somebody else: `hpcq plan` shows all that its programs would start, and runs none of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.local.local_desk import LocalDesk

WORDS = [f"word {number}; touch TOUCHED" for number in range(14)]
DESCRIPTION = """
name: of_others
summary: A program of somebody else.
shape: client and server
program: /bin/echo
modules: [tools/1.2]
version: "{{{{ program }}}} $(touch TOUCHED)"
options:
  word: {{type: choice, default: "{first}", choices: {words}, help: one argument}}
  device: {{type: name, default: first, help: a device}}
server: {{command: "/bin/sleep 1", ends: true}}
command: "{{{{ program }}}} {{{{ device }}}} {{{{ word }}}}"
limit_s: 20
metrics:
  rate_bps: {{better: higher, regex: '(\\d+)', help: no rate}}
"""


def desk_with(folder: Path, test: str) -> LocalDesk:
    desk = LocalDesk.at(folder)
    (desk.folder / "kernels").mkdir()
    (desk.folder / "kernels" / "of_others.yaml").write_text(DESCRIPTION.format(first=WORDS[0], words=json.dumps(WORDS)))
    desk.campaign(test)
    return desk


@pytest.mark.promise("`hpcq plan` shows modules, version commands and commands of foreign programs; `--json` has all of them.")
def test_plan_shows_modules_version_and_every_command_and_starts_none(tmp_path: Path) -> None:
    desk = desk_with(tmp_path, f"{{kernel: of_others, matrix: {{word: {json.dumps(WORDS)}}}}}")
    said = desk.hpcq("plan", "try.yaml").stdout
    listed = ["modules: tools/1.2", "version: /bin/echo '$(touch' 'TOUCHED)'", "server: /bin/sleep 1"]
    listed += ["client: /bin/echo first 'word 0; touch TOUCHED'"]
    assert "".join(f"  starts   {one}\n" for one in listed) in said
    assert "  starts   and 5 more commands: hpcq plan --json has all\n" in said
    [plan] = json.loads(desk.hpcq("plan", "try.yaml", "--json").stdout)
    clients = [one["command"] for one in plan["starts"] if one["what"] == "client"]
    assert clients == [["/bin/echo", "first", word] for word in WORDS]
    assert {one["what"] for one in plan["starts"]} == {"modules", "version", "server", "client"}
    assert not list(tmp_path.rglob("TOUCHED*"))


@pytest.mark.promise("An option that a campaign adds to a described program is refused where the command has it already.")
@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("-n 3 | tee x", "arguments: '-n 3 | tee x': must be words of letters, digits and _.,:=+/@%^~#*-, which no shell"),
        ("{address}", "arguments: '{address}': must be words of"),
        ("-n first", "of_others.yaml: arguments: -n: stands in the command already: must be another option"),
        ("-n=2", "of_others.yaml: arguments: -n: stands in the command already: must be another option"),
        ("7", "arguments: 7: must be words of"),
    ],
)
def test_what_a_campaign_cannot_add(tmp_path: Path, added: str, said: str) -> None:
    quoted = added if added == "7" else json.dumps(added)
    desk = desk_with(tmp_path, f"{{kernel: of_others, parameters: {{arguments: {quoted}}}}}")
    path = desk.folder / "kernels" / "of_others.yaml"
    path.write_text(path.read_text().replace("{{ device }} {{ word }}", "-n {{ device }} {{ word }}"))
    done = desk.hpcq("plan", "try.yaml", expect=2)
    assert said in done.stderr


@pytest.mark.promise("A value that a campaign gives as a name cannot be an option of the program.")
def test_a_name_cannot_be_an_option_of_the_program(tmp_path: Path) -> None:
    desk = desk_with(tmp_path, "{kernel: of_others, parameters: {device: -rf}}")
    done = desk.hpcq("plan", "try.yaml", expect=2)
    assert "device: '-rf': must be a name of a-z, 0-9, _, and . or - (not first), 15 at most" in done.stderr
