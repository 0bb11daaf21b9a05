"""A Markdown summary for the job pages of GitHub and GitLab: first the verdict, then what is wrong, then figures."""

from __future__ import annotations

from collections.abc import Iterator

from hpcq import units
from hpcq.exports.collect import Exported

#: Rows per table. Job pages have a size limit, and nobody reads more.
_ROWS_AT_MOST = 50


def markdown_text(exported: Exported) -> str:
    """The whole text."""
    return "\n".join(_lines(exported)) + "\n"


def _lines(exported: Exported) -> Iterator[str]:
    planned = sum(one.planned_count for one in exported.clusters)
    measured = sum(one.measured_count for one in exported.clusters)
    yield f"## hpcq: {_text(exported.run)}"
    yield ""
    yield f"{_verdict(exported)} {measured} of {planned} planned results measured."
    failed = [one for one in exported.gates if one.verdict == "failed"]
    yield from _table(
        "Gates that failed",
        ("cluster", "pair", "kernel", "seen", "allowed"),
        [
            (one.series.cluster, f"{one.series.client} > {one.series.server}", one.series.kernel, one.words, one.bound)
            for one in failed
        ],
    )
    yield from _table(
        "Not measured",
        ("cluster", "pair", "kernel", "outcome", "reason"),
        [
            (one.cluster, f"{one.client} > {one.server}", one.kernel, one.outcome, one.reason or "no reason was given")
            for one in exported.missing
        ],
    )
    yield from _table(
        "What the evidence says",
        ("cluster", "pair", "finding", "results", "for example"),
        [
            (one["cluster"], f"{one['client']} > {one['server']}", one["rule"], str(one["result_count"]), one["example"])
            for one in exported.findings
        ],
    )
    yield from _table(
        "Medians",
        ("cluster", "pair", "kernel", "size", "metric", "median", "values"),
        [
            (
                row.cluster,
                f"{row.client} > {row.server}",
                " ".join(filter(None, (row.kernel, row.variant, _over(exported.network_text(row))))),
                row.size_text,
                row.metric,
                units.human(row.median, row.unit),
                str(row.n),
            )
            for row in exported.summaries
        ],
    )


def _over(network: str) -> str:
    return f"over {network}" if network else ""


def _verdict(exported: Exported) -> str:
    if exported.gates_unread:
        return f"**Not judged**: {_text(exported.gates_unread)}."
    if exported.exit_code == 3:
        return "**Failed**: a gate failed."
    if exported.exit_code == 4:
        return "**Incomplete**: something was not measured, or could not be judged."
    return "**Passed** every gate." if exported.gates else "**Complete**: the campaign has no gates."


def _table(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield f"### {title}"
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows[:_ROWS_AT_MOST]:
        yield f"| {' | '.join(_text(cell) for cell in row)} |"
    if len(rows) > _ROWS_AT_MOST:
        yield ""
        yield f"… and {len(rows) - _ROWS_AT_MOST} more."


def _text(value: str) -> str:
    """One cell: escapes markup in names or messages from elsewhere."""
    for sign in "\\`*_{}[]<>|#":
        value = value.replace(sign, f"\\{sign}")
    return " ".join(value.split())
