"""What a run achieved, in a few lines."""

from dataclasses import dataclass
from pathlib import Path

from moera import jsonl


@dataclass(frozen=True)
class Row:
    """Held-out success of one environment, or of all, before and after training."""

    name: str
    before: float
    after: float
    num_tasks: int
    first_step: int
    last_step: int

    @property
    def points(self) -> float:
        """Rise in percentage points."""
        return 100 * (self.after - self.before)


def summary_rows(run: Path) -> list[Row]:
    """Return the first and the last headline evaluation, row by row; none if there are not two."""
    lines = [line for line in jsonl.read(run / "evals.jsonl") if line["headline"]]
    ids = list(dict.fromkeys(line["eval_id"] for line in lines))
    if len(ids) < 2:
        return []
    first, last = (
        {line["env_id"]: line for line in lines if line["eval_id"] == eval_id}
        for eval_id in (ids[0], ids[-1])
    )
    names = ["all", *sorted(first.keys() - {"all"})]
    return [
        Row(
            name,
            first[name]["success_rate"],
            last[name]["success_rate"],
            last[name]["num_tasks"],
            first[name]["step"],
            last[name]["step"],
        )
        for name in names
        if name in last
    ]


def summary_lines(run: Path) -> list[str]:
    """Return held-out success before and after training, for all and for each environment."""
    rows = summary_rows(run)
    if not rows:
        return ["no two headline evaluations: nothing to compare"]
    head = rows[0]
    width = max(len(row.name) for row in rows)
    return [
        f"held-out success, greedy, steps {head.first_step} and {head.last_step}",
        *(
            f"  {row.name:{width}s}  {row.before:6.1%} -> {row.after:6.1%}  "
            f"({row.points:+.1f} points, {row.num_tasks} tasks)"
            for row in rows
        ),
    ]
