"""What both kinds of file share: YAML, node lists, where files lie, examples, schemas and the reference page."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hpcq import assets
from hpcq.definition import find_campaign, find_cluster, list_clusters, read_campaign, read_cluster
from hpcq.definition.checking import read_document
from hpcq.definition.files.reference import SECTIONS, campaign_schema, cluster_schema, table, with_tables
from hpcq.errors import UserError
from hpcq.kernels import expected_s, own_kernels
from hpcq.nodelist import expand
from tests import REPOSITORY
from tests.definition.definition_texts import GOOD, TESTS, campaign_says, here, refused

FIXTURES = (here,)  # pytest looks for them in this module
pytestmark = pytest.mark.fast


@cache
def validator(kind: str) -> Any:
    """jsonschema's, with our schema of campaigns or clusters."""
    import jsonschema  # type: ignore[import-untyped]  # here: the other workers need not load it

    schema = campaign_schema() if kind == "campaign" else cluster_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_yaml_is_1_2(here: Path) -> None:
    Path("y.yaml").write_text(
        "\ufeffa: [yes, on, 010, 0o10, 1e3, 2026-01-01, 1:30, ~, .inf, 0x10, '1', true]\nb: &x {c: 1}\nd: *x\n"
    )
    document = read_document(Path("y.yaml"))
    assert document.data["a"] == ["yes", "on", 10, 8, 1000.0, "2026-01-01", "1:30", None, float("inf"), 16, "1", True]
    assert document.data["b"] == document.data["d"] == {"c": 1}
    assert (document.line(("a", 3)), document.line(("b", "c")), document.key_line(("d",))) == (1, 2, 3)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: c\ndescription: caf\xe9\n", "c.yaml:2: byte 0xe9 at offset 24 is not UTF-8: must be UTF-8 text"),
        ("name: c".encode("utf-16"), "c.yaml:1: byte 0xff at offset 0 is not UTF-8: must be UTF-8 text"),
        (b"", "c.yaml:1: the file is empty: it must hold keys with values"),
        (b"# nothing\n", "c.yaml:1: the file is empty: it must hold keys with values"),
        (b"- a\n", "c.yaml:1: found a list: the file must hold keys with values"),
        (b"just words\n", "c.yaml:1: found a text: the file must hold keys with values"),
        (b"a: 1\nb:\n\t- c\n",
         "c.yaml:3:1: not YAML: found character '\\t' that cannot start any token while scanning for the next token"),
        (b"a: [1,\nb: 2\n", "c.yaml:3:1: not YAML: expected ',' or ']', but got '<stream end>' while parsing a flow sequence"),
        (b"a: 'x\n", "c.yaml:2:1: not YAML: found unexpected end of stream while scanning a quoted scalar"),
        (b"a: b: c\n", "c.yaml:1:5: not YAML: mapping values are not allowed here"),
        (b"a: [n[1-2]]\n", "c.yaml:1:6: not YAML: expected ',' or ']', but got '[' while parsing a flow sequence"),
        (b"a: 1\nb: x\x00y\n", "c.yaml:2: control character '\\x00': must be printable characters"),
        (b"a: *b\n", "c.yaml:1:4: not YAML: found undefined alias 'b'"),
        (b"---\na: 1\n---\nb: 1\n",
         "c.yaml:3:1: not YAML: but found another document expected a single document in the stream"),
        (b"[" * 2000, "c.yaml:1: nested too deeply: a campaign or cluster file is a few levels deep"),
        (b"a: &x [*x]\n", "c.yaml:1: aliases make the document larger than 200000 values"),
    ],
)  # fmt: skip
def test_not_yaml(here: Path, content: bytes, message: str) -> None:
    assert campaign_says(content) == [message]


def test_yaml_hints(here: Path) -> None:
    assert refused(read_campaign, "c.yaml", "a:\n\t- c\n").hint == "indent with spaces, not with tabs"
    assert refused(read_campaign, "c.yaml", "a: [n[1-2]]\n").hint == 'inside [ ] put node ranges in quotes: ["n[01-04]", login]'
    assert "iconv" in str(refused(read_campaign, "c.yaml", b"\xff").hint)


@pytest.mark.heavy
def test_alias_bomb_is_stopped(here: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{no}: &a{no} [{', '.join([f'*a{no - 1}'] * 10)}]" for no in range(1, 9)]
    assert campaign_says("\n".join(lines)) == ["c.yaml:1: aliases make the document larger than 200000 values"]


def test_files_that_cannot_be_opened(here: Path) -> None:
    for path, message in (
        ("no/such.yaml", "no/such.yaml: no such file"),
        (".", ".: this is a folder: name the file in it"),
        ("a\0b", "'a\\x00b': this is not a file name"),
    ):
        with pytest.raises(UserError) as caught:
            read_campaign(Path(path))
        assert caught.value.message == message


def test_duplicate_keys_merges_and_tags(here: Path) -> None:
    text = GOOD + "name: d\n" + TESTS + "    kernel: x\n<<: {a: 1}\nevidence: !full x\n? [a]\n: b\n"
    assert campaign_says(text) == [
        "c.yaml:4: name: written twice, first on line 1: each key may stand once",
        "c.yaml:7: kernel: written twice, first on line 6: each key may stand once",
        "c.yaml:8: <<: merge keys are not YAML 1.2: write the keys out, or sweep with matrix",
        "c.yaml:9: evidence: tag !full found: tags are not used in definitions",
        "c.yaml:9: evidence: 'x': must be 'summary' or 'full'",
        "c.yaml:10: a key must be a text",
    ]


def test_node_lists() -> None:
    assert expand("n[01-03,7],login,r[1-2]n[1-2]-ib") == [
        "n01", "n02", "n03", "n7", "login", "r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib",
    ]  # fmt: skip
    assert expand("n[008-011]") == ["n008", "n009", "n010", "n011"]
    for text in ("", "a,,b", "n[", "n]", "n[]", "n[a-b]", "n[1-2-3]", "n[[1]]", "a b", "é", "n[1-999999]", "n[1-999]x[1-999]"):
        with pytest.raises(ValueError, match=r"."):
            expand(text)


# -- where files lie -----------------------------------------------------------------------------------------------------


def put(path: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{{name: {file.stem}, scheduler: local}}\n")
    return file


def test_find_cluster_looks_in_order(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCQ_CLUSTERS", "env1:env2")
    places = [
        "extra/x.yaml", "env1/x.yaml", "env2/x.yaml", "mine/clusters/x.yaml", "clusters/x.yaml", "campaigns/clusters/x.yaml",
        str(here / "home/.config/hpcq/clusters/x.yaml"), str(here / "labs/one/clusters/x.yaml"),
    ]  # fmt: skip
    for place in reversed(places):
        put(place)
        assert str(find_cluster("x", Path("mine/c.yaml"), [Path("extra")])) == place
    assert find_cluster("local") == assets.campaigns() / "clusters" / "local.yaml"
    assert find_cluster("env2/x.yaml") == Path("env2/x.yaml")
    assert {"x", "local", "example-slurm"} <= set(list_clusters())


def test_unknown_cluster_says_where_it_looked(here: Path) -> None:
    put("clusters/alpha.yaml")
    with pytest.raises(UserError) as caught:
        find_cluster("alfa")
    assert caught.value.message == "'alfa': no such cluster: the nearest is alpha"
    known, looked = str(caught.value.hint).splitlines()
    assert known == "known are alpha, example-pbs, example-slurm, local"
    assert looked.startswith("looked for alfa.yaml in clusters, campaigns/clusters, ")
    with pytest.raises(UserError, match=r"^no/x\.yaml: no such cluster file$"):
        find_cluster("no/x.yaml")


def test_two_labs_with_the_same_cluster(here: Path) -> None:
    put("labs/one/clusters/alpha.yaml")
    put("labs/two/clusters/alpha.yaml")
    with pytest.raises(UserError, match=r"^alpha: several labs have this cluster"):
        find_cluster("alpha")
    put("clusters/alpha.yaml")
    assert find_cluster("alpha") == Path("clusters/alpha.yaml")


@pytest.mark.promise("HPCQ_LABS=no leaves out the clusters of running labs.")
def test_labs_of_others_are_left_out_when_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put("labs/one/clusters/alpha.yaml")
    assert "alpha" in list_clusters()
    monkeypatch.setenv("HPCQ_LABS", "no")
    assert "alpha" not in list_clusters()
    with pytest.raises(UserError, match=r"^'alpha': no such cluster$"):
        find_cluster("alpha")
    monkeypatch.setenv("HPCQ_LABS", "maybe")
    with pytest.raises(UserError, match=r"^HPCQ_LABS: 'maybe' is not an answer: must be yes or no$"):
        list_clusters()


def test_find_campaign(here: Path) -> None:
    examples = assets.campaigns()
    assert find_campaign("demo") == find_campaign("campaigns/demo.yaml") == examples / "demo.yaml"
    put("campaigns/demo.yaml")
    put("other.yaml")
    assert find_campaign("campaigns/demo.yaml") == find_campaign("demo") == Path("campaigns/demo.yaml")
    assert find_campaign("other.yaml") == Path("other.yaml")
    with pytest.raises(UserError) as caught:
        find_campaign("campaigns/dmo.yaml")
    assert caught.value.message == "'campaigns/dmo.yaml': no such campaign file: the nearest is demo"
    assert caught.value.hint is not None
    assert {"demo", "lab", "nightly"} <= set(caught.value.hint.removeprefix("known are ").split(", "))
    with pytest.raises(UserError, match="no such campaign file"):
        find_campaign("a\0b")


# -- what hpcq brings ----------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("path", sorted((REPOSITORY / "campaigns").glob("*.yaml")), ids=lambda path: path.stem)
def test_example_campaigns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = read_campaign(path)
    assert campaign.name == path.stem
    validator("campaign").validate(read_document(path).data)
    for name in campaign.clusters:
        assert name in {"alpha", "beta"} or find_cluster(name, path).is_file()


@pytest.mark.heavy
@pytest.mark.parametrize("path", sorted((REPOSITORY / "campaigns/clusters").glob("*.yaml")), ids=lambda path: path.stem)
def test_example_clusters(path: Path) -> None:
    assert read_cluster(path).name == path.stem
    validator("cluster").validate(read_document(path).data)


def test_the_demos_are_short_and_run_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    demo, over_mpi = (read_campaign(REPOSITORY / "campaigns" / f"{name}.yaml") for name in ("demo", "demo-mpi"))
    own = {name for name, one in own_kernels().items() if one.program in {"hpcq-net", "hpcq-mpi"}}
    # A loopback has no wire that spreads a train of datagrams, and no rate at which one begins to lose.
    assert {test.kernel for test in over_mpi.tests} == own - {"udp_dispersion", "udp_rate_search"}
    assert demo.tests == tuple(test for test in over_mpi.tests if not test.needs_mpi), "the same without MPI"
    assert [any(test.needs_mpi for test in one.tests) for one in (demo, over_mpi)] == [False, True]
    for one in (demo, over_mpi):
        assert one.repetition_count * sum(expected_s(test.parameters) for test in one.tests) < 10
    local = read_cluster(REPOSITORY / "campaigns/clusters/local.yaml")
    assert local.nodes == ("local-a", "local-b")


@pytest.mark.heavy
@pytest.mark.parametrize(
    "text",
    [
        GOOD + TESTS + "pair: all\n",
        GOOD + "tests: [{kernel: tcp_strem}]\n",
        GOOD + "tests: [{kernel: tcp_stream, parameters: {rate_bps: 1}}]\n",
        GOOD + "tests: [{kernel: udp_stream, matrix: {message_bytes: [65508]}}]\n",
        GOOD.replace("all", "{round: 3}") + TESTS,
        GOOD.replace("name: c", "name: a b") + TESTS,
    ],
)
def test_schema_refuses_what_the_reader_refuses(here: Path, text: str) -> None:
    Path("c.yaml").write_text(text)
    with pytest.raises(UserError):
        read_campaign(Path("c.yaml"))
    assert not validator("campaign").is_valid(read_document(Path("c.yaml")).data)


@pytest.mark.heavy
def test_schemas_are_schemas() -> None:
    for kind in ("campaign", "cluster"):
        json.dumps(validator(kind).schema)


def test_reference_page_has_the_tables_of_the_code() -> None:
    pages = [(REPOSITORY / name).read_text("utf-8") for name in ("docs/campaigns.md", "docs/described-kernels.md")]
    for name, section in SECTIONS.items():
        assert f"<!-- table {name} -->\n{table(section)}<!-- end -->" in "".join(pages), "make docs"
    assert [with_tables(page) for page in pages] == pages
    for section in SECTIONS.values():
        assert all(field.description for field in section.model_fields.values())
