"""`moera trace RUN`: one optimizer step as a waterfall, from its samples to its weights."""

import html
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go

from moera import telemetry
from moera.report.page import write_page
from moera.report.traces import Span, StepView, step_view

_COLOURS = {
    "rollout": "#2563eb",
    "envs": "#059669",
    "cache": "#d97706",
    "learner": "#9333ea",
}
_OTHER = "#64748b"
_MAX_SAMPLES = 4
_ROW_PX = 18
_LABELS_PX = 250
_CLIENT = 3


def write_trace(run: Path, out: Path, step: int | None = None) -> None:
    """Write the page; it needs nothing else to be looked at.

    Raises:
        NotFoundError: the step was not traced.
    """
    view = step_view(run, step)
    number = view.step.attributes.get(telemetry.STEP_NUMBER)
    shown = _representative(view)
    text = (
        f"Trained {len(view.step.links)} samples, of which {len(view.samples)} have traces here; "
        f"the {len(shown)} shown are spread from the first to the last to finish. Below them the "
        "learner's step, and the weight updates of rollout servers that followed. Hover for "
        "details, drag to zoom."
    )
    figure = _figure(view, shown).to_html(
        full_html=False,
        include_plotlyjs=True,
        default_width="100%",
        config={"displaylogo": False, "responsive": True},
    )
    body = f'<p class="note">{text}</p><div class="card">{figure}</div>'
    write_page(out, f"{run.name}: step {number}", body)


def _representative(view: StepView) -> list[list[Span]]:
    """Return some samples, from the first to the last to finish."""
    ordered = sorted(view.samples.values(), key=lambda spans: max(span.end_s for span in spans))
    if len(ordered) <= _MAX_SAMPLES:
        return ordered
    places = (round(i * (len(ordered) - 1) / (_MAX_SAMPLES - 1)) for i in range(_MAX_SAMPLES))
    return [ordered[place] for place in places]


def _figure(view: StepView, shown: list[list[Span]]) -> go.Figure:
    rows: list[tuple[Span, int]] = []
    for spans in [*shown, view.own, view.updates]:
        rows += _nested(spans)
    start = min(span.start_s for span, _ in rows)
    figure = go.Figure()
    seen: set[str] = set()
    for place, (span, _) in enumerate(rows):
        milliseconds = (span.end_s - span.start_s) * 1e3
        details = "<br>".join(
            f"{html.escape(key)} = {html.escape(str(value))[:80]}"
            for key, value in span.attributes.items()
            if not key.startswith(("net.", "rpc.system", "rpc.user"))
        )
        figure.add_bar(
            x=[span.end_s - span.start_s],
            base=[span.start_s - start],
            y=[place],
            orientation="h",
            name=span.service,
            legendgroup=span.service,
            showlegend=span.service not in seen,
            marker={"color": _COLOURS.get(span.service, _OTHER), "line": {"width": 0}},
            hovertemplate=(
                f"<b>{html.escape(span.name)}</b> ({span.service})<br>{milliseconds:.1f} ms<br>"
                f"trace {span.trace_id}<br>{details}<extra></extra>"
            ),
        )
        seen.add(span.service)
    figure.update_layout(
        template="plotly_white",
        barmode="overlay",
        bargap=0.25,
        height=120 + _ROW_PX * len(rows),
        margin={"l": _LABELS_PX + 10, "r": 16, "t": 48, "b": 48},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
    )
    # Labels are annotations: those of an axis are set flush right, which hides the nesting.
    for place, (span, depth) in enumerate(rows):
        figure.add_annotation(
            x=0,
            xref="paper",
            xshift=14 * depth - _LABELS_PX,
            xanchor="left",
            y=place,
            text=_label(span),
            font={"size": 11},
            showarrow=False,
        )
    figure.update_yaxes(range=[len(rows) - 0.3, -0.7], showticklabels=False, showgrid=False)
    figure.update_xaxes(title="seconds since the first span", side="bottom", zeroline=False)
    return figure


def _label(span: Span) -> str:
    name = span.name.rpartition("/")[2] if span.name.startswith("/") else span.name
    name = name.removeprefix("moera.").removeprefix("sample.").removeprefix("step.")
    if span.name == telemetry.SAMPLE:
        name = f"<b>sample {span.attributes.get(telemetry.SAMPLE_ID, '').rpartition('-')[2]}</b>"
    elif span.name == telemetry.STEP:
        name = f"<b>step {span.attributes.get(telemetry.STEP_NUMBER, '')}</b>"
    elif span.name == telemetry.WEIGHT_UPDATE:
        name = f"<b>weight update to {span.attributes.get(telemetry.VERSION, '')}</b>"
    elif span.name.startswith("/"):
        name = f"{span.service}: {name}"
    return name.replace("_", " ")


def _without_clients(spans: list[Span]) -> list[Span]:
    """Leave out the client's side of calls whose server's side is there: one bar for each call."""
    served = {span.parent_id for span in spans if span.kind != _CLIENT}
    hidden = {
        span.span_id: span.parent_id
        for span in spans
        if span.kind == _CLIENT and span.span_id in served
    }
    return [
        replace(span, parent_id=hidden.get(span.parent_id, span.parent_id))
        for span in spans
        if span.span_id not in hidden
    ]


def _nested(spans: list[Span]) -> list[tuple[Span, int]]:
    """Return spans with their depth, children after their parents, siblings by start."""
    spans = _without_clients(spans)
    ids = {span.span_id for span in spans}
    children: dict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_s):
        # A span whose parent was lost with its process stands at the top.
        children[span.parent_id if span.parent_id in ids else ""].append(span)
    ordered: list[tuple[Span, int]] = []

    def walk(parent: str, depth: int) -> None:
        for span in children[parent]:
            ordered.append((span, depth))
            walk(span.span_id, depth + 1)

    walk("", 0)
    return ordered
