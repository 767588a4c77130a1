"""OpenTelemetry: one `setup` for each process, and every span and metric name of moera.

- A trace is one sample: its root span SAMPLE, started by the rollout server that leases it
  first; other services continue it through gRPC metadata and the trajectory's traceparent.
- A STEP span (learner) links to the samples of its batch, PUBLISH to the step, and each
  WEIGHT_UPDATE (rollout server) to the publish.
- Whether a sample is traced depends on a hash of its group id alone, so that linked traces are
  kept or dropped together. Polling and heartbeats start no trace.
"""

import atexit
import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import Link, Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from moera.config import RunSection, TelemetrySection

# Spans.
SAMPLE = "moera.sample"
RESET = "moera.sample.reset"
TURN = "moera.sample.turn"
ENV_STEP = "moera.sample.env_step"
COMMIT = "moera.sample.commit"
PARTIAL = "moera.sample.partial"
STEP = "moera.step"
FETCH = "moera.step.fetch"
PACK = "moera.step.pack"
FORWARD_BACKWARD = "moera.step.forward_backward"
OPTIMIZER = "moera.step.optimizer"
PUBLISH = "moera.publish"
CHECKPOINT = "moera.checkpoint"
WEIGHT_UPDATE = "moera.weight_update"
EVALUATION = "moera.evaluation"

# Attributes.
RUN_ID = "moera.run_id"
GROUP_ID = "moera.group_id"
SAMPLE_ID = "moera.sample_id"
STEP_NUMBER = "moera.step_number"
VERSION = "moera.version"

# Metrics: name -> (unit, description). Instruments are made by `counter` and `histogram`.
METRICS: dict[str, tuple[str, str]] = {
    "moera.rollout.sampled_tokens": ("{token}", "Tokens sampled by the policy"),
    "moera.rollout.samples": ("{sample}", "Samples that ended on this server, by outcome"),
    "moera.rollout.running": ("{sample}", "Samples running on this server"),
    "moera.rollout.weight_update_pause": ("s", "Time the engine stood still for a weight update"),
    "moera.rollout.weight_updates": ("{update}", "Weight updates, by outcome"),
    "moera.envs.episodes": ("{episode}", "Episodes started, by environment"),
    "moera.envs.open_episodes": ("{episode}", "Episodes open now"),
    "moera.envs.failures": ("{failure}", "Failures inside environments, by environment and kind"),
    "moera.envs.step_duration": ("s", "Time an environment took for one step"),
    "moera.cache.commits": ("{commit}", "Commits, by outcome"),
    "moera.cache.leases": ("{lease}", "Leases granted"),
    "moera.cache.payload_bytes": ("By", "Payload bytes stored"),
    "moera.learner.step_duration": ("s", "Duration of the phases of a step"),
    "moera.learner.trained_tokens": ("{token}", "Policy tokens trained"),
    "moera.learner.staleness": ("{step}", "Staleness of the samples of a batch"),
}

_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("moera")
_meter = metrics.get_meter("moera")


class RootSampler(Sampler):
    """Samples roots that moera starts on purpose; a group's samples by a hash of its id."""

    def __init__(self, ratio: float) -> None:
        self._bound = int(ratio * 2**64)

    def should_sample(  # noqa: PLR0913, PLR0917 (the SDK's signature)
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
        links: Sequence[Link] | None = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        """Decide for a root span: RPCs without a parent are polling and are not recorded."""
        group_id = (attributes or {}).get(GROUP_ID)
        keep = name.startswith("moera.") and (
            group_id is None or xxhash.xxh3_64_intdigest(str(group_id).encode()) < self._bound
        )
        decision = Decision.RECORD_AND_SAMPLE if keep else Decision.DROP
        return SamplingResult(decision, dict(attributes or {}))

    def get_description(self) -> str:
        """Name the sampler."""
        return "moera group hash"


def setup(service: str, run: RunSection, section: TelemetrySection) -> None:
    """Install providers and logging for this process. Call once, from __main__ only.

    Args:
        service: process name such as "rollout-0".
        run: the run; without an id nothing is written to files.
        section: [telemetry].
    """
    _setup_logging(service, section.log_level)
    resource = Resource.create({"service.name": f"moera-{service}", RUN_ID: run.id})
    folder = run.path / "telemetry" if run.id else None
    spans, readings = _exporters(service, section, folder)
    if spans is None:
        return
    tracers = TracerProvider(
        resource=resource,
        sampler=ParentBased(RootSampler(section.sample_ratio)),
        # A step links to every sample of its batch; the SDK keeps only 128 links by default.
        span_limits=SpanLimits(max_links=8192),
    )
    tracers.add_span_processor(BatchSpanProcessor(spans, schedule_delay_millis=500))
    trace.set_tracer_provider(tracers)
    reader = PeriodicExportingMetricReader(
        readings, export_interval_millis=section.metrics_interval_s * 1e3
    )
    meters = MeterProvider([reader], resource=resource)
    metrics.set_meter_provider(meters)
    atexit.register(tracers.shutdown)
    atexit.register(meters.shutdown)


def _exporters(service: str, section: TelemetrySection, folder: Path | None) -> tuple[Any, Any]:
    if section.otlp_endpoint:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        insecure = section.otlp_endpoint.startswith("http://")
        return (
            OTLPSpanExporter(endpoint=section.otlp_endpoint, insecure=insecure),
            OTLPMetricExporter(endpoint=section.otlp_endpoint, insecure=insecure),
        )
    if folder is None:
        return None, None
    from opentelemetry.exporter.otlp.json.file import FileMetricExporter, FileSpanExporter

    folder.mkdir(parents=True, exist_ok=True)
    # One file for each process: a killed one may leave half a line, which must not hide others.
    name = f"{service}-{os.getpid()}.jsonl"
    return FileSpanExporter(folder / f"traces-{name}"), FileMetricExporter(
        folder / f"metrics-{name}"
    )


class _TraceIdFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        context = trace.get_current_span().get_span_context()
        record.trace_id = f"{context.trace_id:032x}" if context.is_valid else "-"
        return True


def _setup_logging(service: str, level: str) -> None:
    handler = logging.StreamHandler()
    handler.addFilter(_TraceIdFilter())
    handler.setFormatter(
        logging.Formatter(
            f"%(asctime)s %(levelname)s {service} %(name)s trace=%(trace_id)s %(message)s"
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)


@contextlib.contextmanager
def span(
    name: str,
    attributes: Mapping[str, AttributeValue] | None = None,
    *,
    parent: str = "",
    links: Sequence[str] = (),
) -> Iterator[Span]:
    """Record a span around a block and make it current.

    Args:
        name: one of the span names above.
        attributes: attributes known at the start (a sample's must hold GROUP_ID).
        parent: traceparent to continue; empty: the current span, or a new trace.
        links: traceparents to link to; empty ones are skipped.
    """
    context = _propagator.extract({"traceparent": parent}) if parent else None
    with _tracer.start_as_current_span(
        name, context, attributes=attributes, links=links_to(links)
    ) as current:
        yield current


def root_span(name: str, attributes: Mapping[str, AttributeValue] | None = None) -> Span:
    """Start a span that is the root of a new trace and is ended by the caller."""
    return _tracer.start_span(name, Context(), attributes=attributes)


def links_to(traceparents: Sequence[str]) -> list[Link]:
    """Return span links to the given traceparents, leaving out empty and malformed ones."""
    found = (
        trace.get_current_span(
            _propagator.extract({"traceparent": parent}, Context())
        ).get_span_context()
        for parent in traceparents
    )
    return [Link(context) for context in found if context.is_valid]


def traceparent(of: Span | None = None) -> str:
    """Return the W3C traceparent of a span (default: the current one), or "" without one."""
    carrier: dict[str, str] = {}
    context = trace.set_span_in_context(of) if of else None
    _propagator.inject(carrier, context)
    return carrier.get("traceparent", "")


@dataclass(frozen=True)
class Instrument:
    """A metric instrument whose name is in METRICS."""

    name: str
    kind: str

    def __post_init__(self) -> None:
        if self.name not in METRICS:
            raise ValueError(f"metric {self.name} is not listed in telemetry.METRICS")

    def add(self, value: float, **attributes: AttributeValue) -> None:
        """Add to a counter or up-down counter."""
        _instrument(self.name, self.kind).add(value, attributes)

    def record(self, value: float, **attributes: AttributeValue) -> None:
        """Record in a histogram."""
        _instrument(self.name, self.kind).record(value, attributes)


_instruments: dict[str, Any] = {}


def _instrument(name: str, kind: str) -> Any:
    if name not in _instruments:
        unit, description = METRICS[name]
        _instruments[name] = getattr(_meter, f"create_{kind}")(name, unit, description)
    return _instruments[name]


def counter(name: str) -> Instrument:
    """Return a counter."""
    return Instrument(name, "counter")


def up_down_counter(name: str) -> Instrument:
    """Return a counter that can fall."""
    return Instrument(name, "up_down_counter")


def histogram(name: str) -> Instrument:
    """Return a histogram."""
    return Instrument(name, "histogram")
