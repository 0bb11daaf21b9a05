"""The gates of a campaign: bounds for results, checked against the metrics of the kernels that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from hpcq import units
from hpcq.definition.checking import QUANTITY, Document, Place, Seconds, Section, check, shown
from hpcq.definition.model import Gate, GateStatistic, ParameterValue, Test
from hpcq.gate_kinds import ONE_CORE, GateAgainst, read_against, written_kinds
from hpcq.kernels import Better, Kernel, Kernels, option_value, read_quantity, unknown_name

#: A share of the reference above this was probably meant as per cent.
_SHARE_MAX = 20.0


class GateSection(Section):
    """A bound that results must keep."""

    metric: str = Field(description="Name of the metric; `hpcq kernels NAME` lists them.")
    kernel: str | None = Field(
        default=None, description="Only results of this kernel. Default: of all tested kernels that have the metric."
    )
    where: dict[str, Any] = Field(default={}, description="Only tests with these parameters.")
    statistic: Literal["median", "worst"] = Field(
        default="median", description="Which value of a pair's repetitions must keep the bound."
    )
    minimum: Annotated[Any, WithJsonSchema(QUANTITY)] = Field(
        default=None,
        description="Lower bound in the metric's unit, or with a unit; with `against` a share of the reference, like 95%.",
    )
    maximum: Annotated[Any, WithJsonSchema(QUANTITY)] = Field(default=None, description="Upper bound, in the same way.")
    against: str | None = Field(
        default=None,
        description=f"The bounds are shares of this: {written_kinds('or')}. Default: absolute bounds.",
    )
    at_least: int | None = Field(
        default=None,
        ge=3,
        le=10_000,
        description="Fewest values of the baseline, or peers; with fewer the gate is inconclusive. Default: 5.",
    )
    history: Seconds | None = Field(
        default=None,
        gt=0,
        description="Count results of peers from this long before the run too, like 30d. Default: of the run only.",
    )


def read_gates(document: Document, tests: Sequence[Test], kernels: Kernels) -> list[Gate]:
    """All gates, one per kernel that they apply to. Complaints go to the document."""
    entries = document.data.get("gates")
    gates: list[Gate] = []
    for position, entry in enumerate(entries if isinstance(entries, list) else []):
        place: Place = ("gates", position)
        section = check(GateSection, entry, document, place) if document.clean(place) else None
        tested = _tested(document, kernels)
        if section is not None and tested:
            gates += _read_gate(document, section, place, tested, tests)
    return gates


#: `expect: link` wants this share of the link, or of what one core moves. Headers take 5 %, a virtual machine or a card in
#: a slot of half its width up to 40 %; half-speed hardware, a wrong driver and a congested uplink take half or more.
LINK_SHARE = 0.6
#: Smaller messages are slow on any link.
LINK_MESSAGE_BYTES = 65536
#: `expect: {METRIC: VALUE}` bears a deviation of so much.
EXPECTED_SHARE = 0.9
#: Pairs of these send as fast as they can; with `rate_bps` they do not.
_STREAMS = ("tcp_stream", "udp_stream", "mpi_stream")


def read_expect(document: Document, tests: Sequence[Test], kernels: Kernels) -> list[Gate]:
    """What `expect` wants, as gates. Complaints go to the document."""
    wanted = document.data.get("expect")
    place: Place = ("expect",)
    if wanted is None or not document.clean(place):
        return []
    tested = _tested(document, kernels)
    if wanted == "link":
        against = replace(read_against("link"), argument=ONE_CORE)
        gates = [
            Gate(
                "throughput_bps",
                test.kernel,
                GateStatistic.MEDIAN,
                LINK_SHARE,
                None,
                test.parameters,
                against,
                expected=True,
                better=Better.HIGHER,
            )
            for test in tests
            if fills_a_link(test.kernel, test.parameters)
        ]
        if not gates and tested and document.clean(("tests",)):
            hint = f"{', '.join(_STREAMS)} with messages of 64 KiB or more and no rate can"
            document.complain(place, "link: none of the tests can fill a link: must be a test that can", hint)
        return gates
    return [gate for metric, value in wanted.items() for gate in _expected(document, metric, value, tested)]


def fills_a_link(name: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a test of this kernel sends so much that the link is what bounds it."""
    large = int(str(parameters.get("message_bytes", 0))) >= LINK_MESSAGE_BYTES
    return name in _STREAMS and large and not parameters.get("rate_bps")


def _expected(document: Document, name: str, value: Any, tested: Mapping[str, Kernel]) -> list[Gate]:
    """The gates of one expected value: in all tests that have the metric, at most a tenth worse."""
    place: Place = ("expect", name)
    having = [kernel for kernel in tested.values() if kernel.metric(name)]
    if not having:
        names = dict.fromkeys(metric.name for kernel in tested.values() for metric in kernel.metrics)
        if tested:
            document.complain(place, *unknown_name(f"metric of {', '.join(tested)}", name, names), at_key=True)
        return []
    try:
        wanted = read_quantity(value, units.unit_of(name) or "", "a number")
    except ValueError as error:
        document.complain(place, str(error))
        return []
    found = []
    for kernel in having:
        metric = kernel.metric(name)
        if metric is None or metric.better is Better.NONE or wanted <= 0:
            what = "has no better direction" if metric is not None and metric.better is Better.NONE else "must be above 0"
            document.complain(place, f"{shown(value)}: {name} {what}")
            continue
        lower = metric.better is Better.LOWER
        bounds = (None, wanted / EXPECTED_SHARE) if lower else (EXPECTED_SHARE * wanted, None)
        found.append(
            Gate(name, kernel.name, GateStatistic.MEDIAN, bounds[0], bounds[1], {}, expected=True, better=metric.better)
        )
    return found


def _tested(document: Document, kernels: Kernels) -> dict[str, Kernel]:
    """The kernels named by the file's tests, even if a test has another error."""
    entries = document.data.get("tests")
    names = [entry.get("kernel") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return {name: kernels[name] for name in names if isinstance(name, str) and name in kernels}


def _read_gate(
    document: Document, section: GateSection, place: Place, tested: Mapping[str, Kernel], tests: Sequence[Test]
) -> list[Gate]:
    if section.kernel is not None and section.kernel not in tested:
        message, hint = unknown_name("kernel that this campaign tests", section.kernel, tested)
        document.complain((*place, "kernel"), message, hint)
        return []
    meant = [tested[section.kernel]] if section.kernel else list(tested.values())
    having = [kernel for kernel in meant if kernel.metric(section.metric)]
    if not having:
        names = dict.fromkeys(metric.name for kernel in meant for metric in kernel.metrics)
        what = f"metric of {', '.join(kernel.name for kernel in meant)}"
        document.complain((*place, "metric"), *unknown_name(what, section.metric, names))
        return []
    against = _against(document, section, place)
    if section.against is not None and against is None:
        return []
    minimum, maximum = (_bound(document, section, (*place, key), key) for key in ("minimum", "maximum"))
    if minimum is None and maximum is None and document.clean(place):
        document.complain(place, "a gate needs a bound: give minimum, maximum or both")
    if minimum is not None and maximum is not None and minimum > maximum:
        low, high = shown(section.minimum), shown(section.maximum)
        document.complain((*place, "minimum"), f"{low} is above the maximum {high} of the same gate")
    gates = []
    for kernel in having:
        metric = kernel.metric(section.metric)
        better = Better.NONE if metric is None else metric.better
        if section.statistic == "worst" and better is Better.NONE:
            document.complain((*place, "statistic"), f"'worst': {section.metric} has no better direction, must be median")
        where = _where(document, section.where, (*place, "where"), kernel, tests, last=len(having) == 1)
        if where is not None:
            statistic = GateStatistic(section.statistic)
            gates.append(Gate(section.metric, kernel.name, statistic, minimum, maximum, where, against, better=better))
    if not gates and document.clean(place) and document.clean(("tests",)):
        document.complain((*place, "where"), "no test of this campaign has these parameters: correct them or the tests")
    return gates


def _against(document: Document, section: GateSection, place: Place) -> GateAgainst | None:
    """The reference of a relative gate; None for an absolute one, or after a complaint."""
    made: GateAgainst | None = None
    try:
        made = None if section.against is None else read_against(section.against)
    except ValueError as error:
        document.complain((*place, "against"), str(error))
    if section.at_least is not None and not (made and made.kind.counted):
        document.complain(
            (*place, "at_least"), f"belongs to gates against {written_kinds('or', lambda kind: kind.counted)}", at_key=True
        )
    if section.history is not None and not (made and made.kind.takes_history):
        document.complain(
            (*place, "history"), f"belongs to gates against {written_kinds('or', lambda kind: kind.takes_history)}", at_key=True
        )
    if made is None:
        return None
    if made.kind.unit is not None and units.unit_of(section.metric) != made.kind.unit:
        message = f"{made}: {section.metric} is not in {made.kind.unit}: must be a metric in {made.kind.unit}"
        document.complain((*place, "against"), message)
    if not document.clean(place):
        return None
    return replace(made, at_least=section.at_least or made.at_least, history_s=section.history or 0.0)


def _bound(document: Document, section: GateSection, place: Place, key: str) -> float | None:
    value = section.minimum if key == "minimum" else section.maximum
    if value is None:
        return None
    unit = (units.unit_of(section.metric) or "") if section.against is None else "ratio"
    try:
        bound = read_quantity(value, unit, "a number" if section.against is None else "a share like 95%, or a number")
    except ValueError as error:
        percent = isinstance(value, str) and value.strip().endswith("%")
        hint = "with `against`, a bound is a share of the reference: 95%" if section.against is not None else None
        document.complain(place, str(error), "a share like 95% needs `against`: what it is a share of" if percent else hint)
        return None
    if section.against is not None and not 0 < bound <= _SHARE_MAX:
        hint = f"write {shown(value)}%" if 1 < bound <= 100 * _SHARE_MAX else None
        message = f"{shown(value)} is {100 * bound:.6g} % of the reference: must be a share above 0, up to {_SHARE_MAX:g}"
        document.complain(place, message, hint)
        return None
    return bound


def _where(
    document: Document, where: Mapping[str, Any], place: Place, kernel: Kernel, tests: Sequence[Test], *, last: bool
) -> dict[str, ParameterValue] | None:
    """The condition with final values, or None if no test of the kernel meets it."""
    checked: dict[str, ParameterValue] = {}
    for name, value in where.items():
        option = kernel.option(name)
        if option is None:
            if last:
                names = [one.name for one in kernel.options]
                message, hint = unknown_name(f"parameter of {kernel.name}", name, names)
                document.complain((*place, name), message.removeprefix(f"{name!r} is "), hint, at_key=True)
            return None
        try:
            checked[name] = option_value(kernel, option, value)
        except ValueError as error:
            document.complain((*place, name), str(error))
            return None
    mine = [test for test in tests if test.kernel == kernel.name]
    if any(all(test.parameters[name] == value for name, value in checked.items()) for test in mine):
        return checked
    return None
