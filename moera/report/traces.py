"""Spans of a run, read back from the OTLP JSON files that its processes wrote."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moera import jsonl, telemetry
from moera.errors import NotFoundError


@dataclass(frozen=True)
class Span:
    """One span."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    """OTLP span kind: 2 is a server's side of a call, 3 its client's."""
    start_s: float
    end_s: float
    attributes: dict[str, Any] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    """Trace ids that it links to."""


def read_spans(run: Path) -> list[Span]:
    """Return every span of a run."""
    folder = run / "telemetry"
    return [
        span
        for file in sorted(folder.glob("traces-*.jsonl"))
        for line in jsonl.read(file)
        for span in _spans(line)
    ]


def _spans(line: dict[str, Any]) -> Iterator[Span]:
    for resource in line.get("resourceSpans", ()):
        about = _attributes(resource["resource"].get("attributes", ()))
        service = str(about.get("service.name", "")).removeprefix("moera-")
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield Span(
                    service,
                    span["name"],
                    span["traceId"],
                    span["spanId"],
                    span.get("parentSpanId", ""),
                    int(span.get("kind", 0)),
                    int(span["startTimeUnixNano"]) / 1e9,
                    int(span["endTimeUnixNano"]) / 1e9,
                    _attributes(span.get("attributes", ())),
                    tuple(link["traceId"] for link in span.get("links", ())),
                )


def _attributes(pairs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        for kind, value in pair["value"].items():  # one of stringValue, intValue, ...
            found[pair["key"]] = int(value) if kind == "intValue" else value
    return found


@dataclass(frozen=True)
class StepView:
    """Everything that is connected with one optimizer step."""

    step: Span
    own: list[Span]
    """The step's own trace: the step, its phases, its publish and checkpoint."""
    samples: dict[str, list[Span]]
    """Trace id to the spans of a sample that the step trained."""
    updates: list[Span]
    """Weight updates of rollout servers, and what they called, that followed the publish."""

    @property
    def services(self) -> set[str]:
        """Names of the services that took part."""
        spans = [*self.own, *self.updates, *(span for all in self.samples.values() for span in all)]
        return {span.service for span in spans}


def step_view(run: Path, step: int | None) -> StepView:
    """Gather a step and what it links to.

    Args:
        step: default: the last one that has samples with traces.

    Raises:
        NotFoundError: no such step was traced.
    """
    spans = read_spans(run)
    found = [span for span in spans if span.name == telemetry.STEP]
    if step is not None:
        found = [span for span in found if span.attributes.get(telemetry.STEP_NUMBER) == step]
    if not found:
        which = "step" if step is None else f"step {step}"
        raise NotFoundError(f"run {run.name!r} has no trace of a {which}; is it finished?")
    # A step that was trained again after a restore has several: the last one counts.
    root = max(found, key=lambda span: span.start_s)
    linked = set(root.links)
    samples: dict[str, list[Span]] = {trace_id: [] for trace_id in root.links}
    update_traces = {
        span.trace_id
        for span in spans
        if span.name == telemetry.WEIGHT_UPDATE and root.trace_id in span.links
    }
    own, updates = [], []
    for span in sorted(spans, key=lambda span: span.start_s):
        if span.trace_id == root.trace_id:
            own.append(span)
        elif span.trace_id in linked:
            samples[span.trace_id].append(span)
        elif span.trace_id in update_traces:
            updates.append(span)
    return StepView(root, own, {key: value for key, value in samples.items() if value}, updates)


def connected_services(run: Path, step: int) -> set[str]:
    """Return the services whose spans one step's view connects."""
    return step_view(run, step).services
