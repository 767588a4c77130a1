"""Pages of a run that is written here, line by line."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from moera import jsonl
from moera.errors import NotFoundError
from moera.report.curves import write_report
from moera.report.samples import print_samples, spread
from moera.report.summary import summary_lines, summary_rows
from moera.report.traces import connected_services, step_view
from moera.report.waterfall import write_trace


def evaluation(step: int, all_rate: float, sums_rate: float) -> list[dict[str, Any]]:
    shared = {"eval_id": f"eval-1.{step}", "step": step, "headline": True, "num_tasks": 50}
    return [
        {**shared, "env_id": "all", "success_rate": all_rate},
        {**shared, "env_id": "sums", "success_rate": sums_rate},
    ]


def sample(step: int, text: str = "4") -> dict[str, Any]:
    return {
        "step": step,
        "sample_id": f"g{step}/0",
        "env_id": "sums",
        "task_id": "1",
        "reward": 0.5,
        "finish_reason": "FINISH_REASON_TERMINATED",
        "versions": ["1.0"],
        "num_turns": 1,
        "num_resumes": 2,
        "sequences": [
            [
                {"source": "prompt", "trained": False, "text": "2 + 2 = <b>"},
                {"source": "policy", "trained": True, "text": text},
                {"source": "policy", "trained": False, "text": "masked words"},
            ]
        ],
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run-1"
    folder.mkdir()
    for step in range(1, 4):
        values = {"reward_mean": step / 4, "tokens_per_second": 10.0, "time_wait": 1.0}
        line = {"step": step, "time": 100.0 + step, "values": values}
        jsonl.append(folder / "metrics.jsonl", {**line, "expert_load": [[0.75, 0.25]]})
        jsonl.append(folder / "samples.jsonl", sample(step))
    jsonl.append(folder / "evals.jsonl", *evaluation(0, 0.25, 0.2), *evaluation(3, 0.75, 0.8))
    reading = {"time": 100.0, "rollout_tokens_per_second": 5.0, "counts": None}
    jsonl.append(folder / "monitor.jsonl", {**reading, "ready_groups": 1, "outstanding_groups": 2})
    return folder


def test_the_summary_compares_the_first_with_the_last_evaluation(run: Path) -> None:
    rows = summary_rows(run)
    assert [(row.name, row.before, row.after, row.points) for row in rows] == [
        ("all", 0.25, 0.75, 50.0),
        ("sums", 0.2, 0.8, pytest.approx(60.0)),
    ]
    assert "25.0% ->  75.0%  (+50.0 points, 50 tasks)" in summary_lines(run)[1]


def test_one_evaluation_is_compared_with_nothing(tmp_path: Path) -> None:
    jsonl.append(tmp_path / "evals.jsonl", *evaluation(0, 0.25, 0.2))
    assert summary_rows(tmp_path) == []
    assert "nothing to compare" in summary_lines(tmp_path)[0]


def test_the_report_stands_alone_and_escapes_what_policies_say(run: Path, tmp_path: Path) -> None:
    jsonl.append(run / "samples.jsonl", sample(4, "</pre><script>alert(1)</script>"))
    out = tmp_path / "report.html"
    write_report(run, out)
    page = out.read_text()
    assert "http://" not in page.partition("<body>")[0].replace("http://www.w3.org", "")[:5_000]
    assert "<script src" not in page
    assert "alert(1)</script>" not in page
    assert "2 + 2 = &lt;b&gt;" in page
    assert '<span class="masked">masked words</span>' in page
    assert "+50.0" in page


def test_a_run_without_a_step_has_a_report_too(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_report(tmp_path / "empty", tmp_path / "report.html")
    assert "No step was finished yet" in (tmp_path / "report.html").read_text()


def test_conversations_are_printed_by_step(run: Path) -> None:
    console = Console(record=True, width=120)
    print_samples(run, console, step=2, count=5)
    shown = console.export_text()
    assert "step 2" in shown
    assert "moved 2 times" in shown
    assert "2 + 2 = <b>4masked words" in shown
    with pytest.raises(NotFoundError, match="no conversation of step 9; steps 1 to 3"):
        print_samples(run, console, step=9, count=5)
    assert [line["step"] for line in spread([sample(n) for n in range(1, 10)], 3)] == [1, 5, 9]


def span(service: str, name: str, trace: str, **more: Any) -> dict[str, Any]:
    """Return a line as the exporter writes it."""
    number = more.pop("number", 1)
    written = {
        "traceId": trace,
        "spanId": f"{service}-{name}-{number}",
        "name": name,
        "startTimeUnixNano": str(number * 10**9),
        "endTimeUnixNano": str((number + 1) * 10**9),
        "attributes": [
            {"key": key, "value": {"intValue": str(value)}}
            for key, value in more.pop("attributes", {}).items()
        ],
        "links": [{"traceId": linked} for linked in more.pop("links", ())],
        **more,
    }
    about = [{"key": "service.name", "value": {"stringValue": f"moera-{service}"}}]
    return {
        "resourceSpans": [{"resource": {"attributes": about}, "scopeSpans": [{"spans": [written]}]}]
    }


@pytest.fixture
def traced(run: Path) -> Path:
    folder = run / "telemetry"
    folder.mkdir()
    lines = [
        span("rollout", "moera.sample", "s1"),
        span("rollout", "/moera.v1.EnvService/Step", "s1", kind=3, number=2),
        span(
            "envs",
            "/moera.v1.EnvService/Step",
            "s1",
            kind=2,
            parentSpanId="rollout-/moera.v1.EnvService/Step-2",
        ),
        span("cache", "/moera.v1.ExperienceService/Commit", "s1", kind=2),
        span("rollout", "moera.sample", "another"),
        span("learner", "moera.step", "L", links=["s1"], attributes={"moera.step_number": 7}),
        span("learner", "moera.publish", "L"),
        span("rollout", "moera.weight_update", "w", links=["L"]),
        span("rollout", "moera.weight_update", "w2", links=["other"]),
    ]
    file = folder / "traces-x.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"resourceSp')
    return run


def test_a_step_is_connected_with_its_samples_and_weight_updates_only(traced: Path) -> None:
    view = step_view(traced, 7)
    assert list(view.samples) == ["s1"]
    assert [span.trace_id for span in view.updates] == ["w"]
    assert connected_services(traced, 7) == {"rollout", "envs", "cache", "learner"}
    with pytest.raises(NotFoundError, match="no trace of a step 8"):
        step_view(traced, 8)


def test_the_waterfall_has_one_bar_for_each_call(traced: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.html"
    write_trace(traced, out, 7)
    page = out.read_text()
    assert "run-1: step 7" in page
    assert page.count('"envs: Step"') == 1
    assert "moera.v1.EnvService\\u002fStep\\u003c\\u002fb\\u003e (rollout)" not in page
