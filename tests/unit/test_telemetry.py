"""Spans, links and sampling: what other services see of a trace."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, ParentBased
from opentelemetry.trace import INVALID_SPAN, TraceFlags

from moera import telemetry
from moera.config import TelemetrySection


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Record this test's spans in memory, without the process-wide provider."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        sampler=ParentBased(telemetry.RootSampler(0.5)), span_limits=SpanLimits(max_links=8192)
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", provider.get_tracer("moera"))
    return exporter


def decision(name: str, group: str | None, ratio: float) -> Decision:
    attributes = {telemetry.GROUP_ID: group} if group else {}
    sampler = telemetry.RootSampler(ratio)
    return sampler.should_sample(None, 1, name, attributes=attributes).decision


def kept(ratio: float) -> set[str]:
    groups = [f"g-{index}" for index in range(2000)]
    keep = Decision.RECORD_AND_SAMPLE
    return {group for group in groups if decision(telemetry.SAMPLE, group, ratio) is keep}


def test_a_share_of_groups_is_sampled_by_id_alone() -> None:
    assert kept(0.0) == set()
    assert len(kept(1.0)) == 2000
    assert 800 < len(kept(0.5)) < 1200
    assert kept(0.25) < kept(0.5)


def test_roots_that_moera_did_not_start_are_dropped() -> None:
    assert decision("/moera.v1.ExperienceService/Lease", None, 1.0) is Decision.DROP
    assert decision(telemetry.STEP, None, 0.0) is Decision.RECORD_AND_SAMPLE


def test_a_traceparent_continues_its_trace(recorded: InMemorySpanExporter) -> None:
    root = telemetry.root_span(telemetry.STEP)
    with telemetry.span(telemetry.FETCH, parent=telemetry.traceparent(root)) as child:
        assert telemetry.traceparent() == telemetry.traceparent(child)
    root.end()
    fetch, step = recorded.get_finished_spans()
    assert fetch.context.trace_id == step.context.trace_id
    assert fetch.parent is not None
    assert fetch.parent.span_id == step.context.span_id


def test_a_root_span_ignores_the_current_span(recorded: InMemorySpanExporter) -> None:
    with telemetry.span(telemetry.STEP):
        telemetry.root_span(telemetry.EVALUATION).end()
    evaluation, _ = recorded.get_finished_spans()
    assert evaluation.parent is None


def test_a_dropped_sample_drops_its_children_everywhere(recorded: InMemorySpanExporter) -> None:
    dropped = next(f"g-{i}" for i in range(99) if f"g-{i}" not in kept(0.5))
    root = telemetry.root_span(telemetry.SAMPLE, {telemetry.GROUP_ID: dropped})
    parent = telemetry.traceparent(root)
    assert int(parent[-2:], 16) & TraceFlags.SAMPLED == 0
    with telemetry.span(telemetry.RESET, parent=parent):
        pass
    root.end()
    assert recorded.get_finished_spans() == ()


def test_a_step_keeps_thousands_of_links(recorded: InMemorySpanExporter) -> None:
    parents = [f"00-{index:032x}-{index:016x}-01" for index in range(1, 5001)]
    with telemetry.span(telemetry.STEP, links=parents):
        pass
    (step,) = recorded.get_finished_spans()
    assert [link.context.span_id for link in step.links] == list(range(1, 5001))


@pytest.mark.parametrize("bad", ["", "00-zz-1-01", "nonsense", f"00-{0:032x}-{0:016x}-01"])
def test_empty_and_malformed_traceparents_are_skipped(
    recorded: InMemorySpanExporter, bad: str
) -> None:
    assert telemetry.links_to([bad]) == []
    with telemetry.span(telemetry.STEP, parent=bad, links=[bad]):
        pass
    (step,) = recorded.get_finished_spans()
    assert step.parent is None


def test_links_do_not_fall_back_to_the_current_span(recorded: InMemorySpanExporter) -> None:
    with telemetry.span(telemetry.STEP):
        assert telemetry.links_to(["nonsense"]) == []


def test_without_a_span_there_is_no_traceparent() -> None:
    assert telemetry.traceparent() == ""
    assert telemetry.traceparent(INVALID_SPAN) == ""


def test_an_unlisted_metric_is_refused_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="not listed"):
        telemetry.counter("moera.nothing")


def test_without_a_provider_instruments_are_silent() -> None:
    telemetry.counter("moera.cache.leases").add(1, outcome="ok")
    telemetry.histogram("moera.envs.step_duration").record(0.5)
    telemetry.up_down_counter("moera.envs.open_episodes").add(-1)


CHILD = """
import logging
from pathlib import Path
from moera import telemetry
from moera.config import RunSection, TelemetrySection

telemetry.setup("rollout-0", RunSection(id={id!r}, dir=Path({dir!r})), TelemetrySection())
sample = telemetry.root_span(telemetry.SAMPLE, {{telemetry.GROUP_ID: "g"}})
with telemetry.span(telemetry.STEP, links=[telemetry.traceparent(sample)]):
    logging.warning("inside")
sample.end()
telemetry.counter("moera.cache.leases").add(2, outcome="ok")
"""


def run_child(folder: Path, run_id: str) -> "subprocess.CompletedProcess[str]":
    code = CHILD.format(id=run_id, dir=str(folder))
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )


def test_a_process_leaves_its_spans_and_metrics_in_the_run_folder(tmp_path: Path) -> None:
    done = run_child(tmp_path, "r-1")
    folder = tmp_path / "r-1" / "telemetry"
    (traces,) = folder.glob("traces-rollout-0-*.jsonl")
    (metrics,) = folder.glob("metrics-rollout-0-*.jsonl")
    (resource,) = json.loads(traces.read_text())["resourceSpans"]
    names = {
        item["key"]: item["value"]["stringValue"] for item in resource["resource"]["attributes"]
    }
    assert names["service.name"] == "moera-rollout-0"
    assert names["moera.run_id"] == "r-1"
    spans: dict[str, Any] = {span["name"]: span for span in resource["scopeSpans"][0]["spans"]}
    (link,) = spans[telemetry.STEP]["links"]
    assert link["spanId"] == spans[telemetry.SAMPLE]["spanId"]
    assert '"asInt":"2"' in metrics.read_text().splitlines()[-1]
    trace_id = spans[telemetry.STEP]["traceId"]
    assert re.search(rf"WARNING rollout-0 root trace={trace_id} inside", done.stderr)


def test_a_process_without_a_run_writes_no_file(tmp_path: Path) -> None:
    done = run_child(tmp_path, "")
    assert "trace=- inside" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_with_an_endpoint_nothing_goes_to_files(tmp_path: Path) -> None:
    section = TelemetrySection(otlp_endpoint="http://127.0.0.1:1")
    exporters = telemetry._exporters("rollout-0", section, tmp_path)
    assert [type(exporter).__name__ for exporter in exporters] == [
        "OTLPSpanExporter",
        "OTLPMetricExporter",
    ]
    assert list(tmp_path.iterdir()) == []
    for exporter in exporters:
        exporter.shutdown()
