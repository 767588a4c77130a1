"""`moera report RUN`: one self-contained page with a run's curves and conversations."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from moera import jsonl
from moera.report.page import write_page
from moera.report.samples import as_html, spread
from moera.report.summary import summary_rows

_COLOURS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2", "#a16207", "#64748b")
_HEIGHT = 300
_STYLE = """
.grid { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
@media (max-width: 800px) { .grid { grid-template-columns: minmax(0, 1fr); } }
.sample { background: #fff; border: 1px solid #e2e8f0; border-radius: 8px; padding: 12px 16px;
  margin: 0 0 12px; }
.sample h3 { font-size: 14px; margin: 0 0 8px; font-weight: 600; }
.sample pre { white-space: pre-wrap; margin: 0; font: 13px/1.5 ui-monospace, monospace; }
.prompt { color: #64748b; } .environment { color: #92400e; background: #fef3c7; }
.policy { color: #065f46; background: #d1fae5; }
.masked { color: #991b1b; background: #fee2e2; }
"""

Lines = Sequence[dict[str, Any]]


def write_report(run: Path, out: Path) -> None:
    """Write the page; it needs nothing else to be looked at."""
    metrics = jsonl.read(run / "metrics.jsonl")
    evals = jsonl.read(run / "evals.jsonl")
    monitor = jsonl.read(run / "monitor.jsonl")
    sections = [
        ("Learning", [_success(evals), _reward(metrics), _lengths(metrics), _entropy(metrics)]),
        ("Optimization", [_kl(metrics), _gradient(metrics), _clipping(metrics), _rate(metrics)]),
        ("Experts", [_balance(metrics), _load(metrics)]),
        ("Asynchrony", [_staleness(metrics), _buffer(monitor)]),
        ("Speed", [_throughput(metrics, monitor), _phases(metrics)]),
        ("Samples", [_losses(monitor), _flat(metrics)]),
    ]
    body = [_headline(run, metrics)]
    for title, figures in sections:
        cards = "".join(f'<div class="card">{_as_div(figure)}</div>' for figure in figures)
        body.append(f'<h2>{title}</h2><div class="grid">{cards}</div>')
    body.append(_conversations(jsonl.read(run / "samples.jsonl")))
    write_page(out, run.name, "".join(body), style=_STYLE, script=get_plotlyjs())


def _headline(run: Path, metrics: Lines) -> str:
    if not metrics:
        return '<p class="note">No step was finished yet.</p>'
    minutes = (metrics[-1]["time"] - metrics[0]["time"]) / 60
    note = f"{metrics[-1]['step']} steps; {minutes:.1f} minutes from the first to the last"
    rows = "".join(
        f"<tr><td>{html.escape(row.name)}</td><td>{row.before:.1%}</td><td>{row.after:.1%}</td>"
        f"<td>{row.points:+.1f}</td><td>{row.num_tasks}</td></tr>"
        for row in summary_rows(run)
    )
    if not rows:
        return f'<p class="note">{note}</p>'
    return (
        f'<p class="note">{note}. Held-out tasks, greedy, each evaluation pinned to one weight '
        "version.</p><table><tr><th>held-out success</th><th>before</th><th>after</th>"
        f"<th>points</th><th>tasks</th></tr>{rows}</table>"
    )


def _conversations(samples: Lines) -> str:
    shown = "".join(as_html(line) for line in spread(samples, 3))
    if not shown:
        return ""
    legend = (
        '<span class="prompt">prompt</span>, <span class="policy">sampled and trained</span>, '
        '<span class="masked">sampled, not trained</span>, '
        '<span class="environment">environment</span>'
    )
    return f'<h2>Conversations</h2><p class="note">{legend}</p>{shown}'


# -- figures -------------------------------------------------------------------------------------


def _as_div(figure: go.Figure) -> str:
    return figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        default_width="100%",
        default_height=_HEIGHT,
        config={"displayModeBar": False, "responsive": True},
    )


def _figure(title: str, x: str = "step", y: str = "") -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 14}, "x": 0.02, "xanchor": "left"},
        template="plotly_white",
        colorway=_COLOURS,
        height=_HEIGHT,
        margin={"l": 64, "r": 16, "t": 40, "b": 76},
        legend={"orientation": "h", "y": -0.25, "x": 0, "font": {"size": 11}},
        hovermode="x unified",
        showlegend=True,
    )
    figure.update_xaxes(title={"text": x, "standoff": 4}, zeroline=False)
    figure.update_yaxes(title=y, zeroline=False)
    return figure


def _lines(figure: go.Figure, metrics: Lines, names: dict[str, str]) -> go.Figure:
    for name, label in names.items():
        points = [
            (line["step"], line["values"][name]) for line in metrics if name in line["values"]
        ]
        figure.add_scatter(
            x=[step for step, _ in points], y=[value for _, value in points], name=label
        )
    return figure


def _success(evals: Lines) -> go.Figure:
    figure = _figure("held-out success (greedy)")
    for env_id in sorted(
        {line["env_id"] for line in evals}, key=lambda name: (name != "all", name)
    ):
        chosen = [line for line in evals if line["env_id"] == env_id]
        figure.add_scatter(
            x=[line["step"] for line in chosen],
            y=[line["success_rate"] for line in chosen],
            name=env_id,
            mode="lines+markers",
            line={"width": 3 if env_id == "all" else 1.5},
        )
    return figure.update_yaxes(tickformat=".0%", range=[0, 1.02])


def _reward(metrics: Lines) -> go.Figure:
    names = {"reward_mean": "reward, mean", "reward_std": "reward, deviation"}
    names["success_rate"] = "success rate"
    return _lines(_figure("training reward"), metrics, names)


def _lengths(metrics: Lines) -> go.Figure:
    names = {"response_tokens_mean": "sampled tokens per sample"}
    return _lines(_figure("response length", y="tokens"), metrics, names).update_yaxes(
        rangemode="tozero"
    )


def _entropy(metrics: Lines) -> go.Figure:
    return _lines(_figure("entropy of the policy", y="nats"), metrics, {"entropy": "entropy"})


def _kl(metrics: Lines) -> go.Figure:
    names = {
        "kl": "behaviour to trained policy",
        "logprob_mismatch_kl": "same weights, sampler to trainer",
    }
    figure = _lines(_figure("KL divergence", y="nats per token"), metrics, names)
    # Rounding alone makes some estimates 0, which a logarithmic axis cannot show.
    return figure.update_yaxes(type="log", exponentformat="power", range=[-10, 0])


def _gradient(metrics: Lines) -> go.Figure:
    return _lines(_figure("gradient norm, before clipping"), metrics, {"grad_norm": "norm"})


def _clipping(metrics: Lines) -> go.Figure:
    names = {"clip_fraction": "tokens whose gradient the clip took"}
    return _lines(_figure("clipping"), metrics, names).update_yaxes(tickformat=".1%")


def _rate(metrics: Lines) -> go.Figure:
    return _lines(_figure("learning rate"), metrics, {"lr": "rate"}).update_yaxes(
        rangemode="tozero", exponentformat="e"
    )


def _flat(metrics: Lines) -> go.Figure:
    names = {"zero_variance_groups": "groups whose rewards are all the same"}
    return _lines(_figure("groups without a signal"), metrics, names).update_yaxes(
        rangemode="tozero"
    )


def _balance(metrics: Lines) -> go.Figure:
    names = {
        "router_max_violation": "largest load over the mean, less 1",
        "dead_experts": "dead experts",
    }
    return _lines(_figure("router balance (worst layer)"), metrics, names)


def _load(metrics: Lines) -> go.Figure:
    figure = _figure("share of tokens by expert, last step", x="expert")
    figure.update_layout(hovermode="closest", showlegend=False)
    if metrics:
        load = metrics[-1]["expert_load"]
        figure.add_heatmap(
            z=load,
            y=[f"layer {layer}" for layer in range(len(load))],
            colorscale="Blues",
            zmin=0,
            colorbar={"tickformat": ".0%", "thickness": 12},
        )
    return figure.update_yaxes(autorange="reversed")


def _staleness(metrics: Lines) -> go.Figure:
    names = {"staleness_mean": "mean", "staleness_max": "largest"}
    return _lines(_figure("staleness of a batch", y="steps"), metrics, names).update_yaxes(
        rangemode="tozero"
    )


def _over_time(
    figure: go.Figure, monitor: Lines, label: str, value: Callable[[dict[str, Any]], Any]
) -> None:
    start = monitor[0]["time"] if monitor else 0.0
    points = [(line["time"] - start, value(line)) for line in monitor]
    points = [point for point in points if point[1] is not None]
    figure.add_scatter(x=[at for at, _ in points], y=[found for _, found in points], name=label)


def _buffer(monitor: Lines) -> go.Figure:
    figure = _figure("groups in the cache", x="seconds")
    for name, label in (("ready_groups", "ready"), ("outstanding_groups", "outstanding")):
        _over_time(figure, monitor, label, lambda line, name=name: line[name])
    return figure


def _losses(monitor: Lines) -> go.Figure:
    figure = _figure("samples not trained", x="seconds")
    for name in ("evicted", "dropped", "failed"):
        _over_time(figure, monitor, name, lambda line, name=name: (line["counts"] or {}).get(name))
    return figure.update_yaxes(rangemode="tozero")


def _throughput(metrics: Lines, monitor: Lines) -> go.Figure:
    figure = _figure("tokens each second", x="seconds")
    _over_time(
        figure, monitor, "sampled by rollout", lambda line: line["rollout_tokens_per_second"]
    )
    start = monitor[0]["time"] if monitor else 0.0
    figure.add_scatter(
        x=[line["time"] - start for line in metrics],
        y=[line["values"]["tokens_per_second"] for line in metrics],
        name="trained, prompts included",
    )
    return figure.update_yaxes(rangemode="tozero")


def _phases(metrics: Lines) -> go.Figure:
    figure = _figure("time of a step by phase", y="seconds")
    names = sorted(
        {name for line in metrics for name in line["values"] if name.startswith("time_")}
    )
    for name in names:
        if name != "time_step":
            figure.add_bar(
                x=[line["step"] for line in metrics],
                y=[line["values"].get(name, 0.0) for line in metrics],
                name=name.removeprefix("time_").replace("_", ", "),
            )
    return figure.update_layout(barmode="stack", bargap=0.15, hovermode="closest")
