"""All checks over one overlay, and over the overlays together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.check import network, references, run_file, schemas, security
from deploy.check.manifests import Manifest, name_of, of_kind, workloads


@dataclass(frozen=True)
class Report:
    """What the checks of one folder found."""

    name: str
    problems: list[str]
    objects: int
    validated: int
    unvalidated: list[str]


Crds = dict[tuple[str, str], dict[str, Any]]


def check_run(name: str, manifests: list[Manifest], crds: Crds, pools: set[str]) -> Report:
    """Check a rendered overlay. `pools` are the node pools that pods may ask for."""
    shape = schemas.validate(manifests, crds)
    storage = str(run_file.read(manifests).get("storage", {}).get("uri", ""))
    problems = [
        *shape.problems,
        *references.problems(manifests),
        *security.problems(manifests),
        *network.problems(manifests, storage),
        *run_file.problems(manifests),
        *_placement(manifests, pools),
    ]
    return _report(name, manifests, shape, problems)


def check_cluster(name: str, manifests: list[Manifest], crds: Crds) -> Report:
    """Check objects that belong to a cluster and no run, by schema only."""
    shape = schemas.validate(manifests, crds)
    return _report(name, manifests, shape, shape.problems)


def _report(
    name: str, manifests: list[Manifest], shape: schemas.Outcome, problems: list[str]
) -> Report:
    kinds = sorted(shape.unvalidated)
    return Report(name, problems, len(manifests), shape.validated, kinds)


def node_pools(manifests: list[Manifest]) -> set[str]:
    """Return the values of moera.io/pool that NodePools give their nodes."""
    templates = [pool["spec"]["template"] for pool in of_kind(manifests, "NodePool")]
    labels = [template.get("metadata", {}).get("labels", {}) for template in templates]
    return {label["moera.io/pool"] for label in labels if "moera.io/pool" in label}


def _placement(manifests: list[Manifest], pools: set[str]) -> list[str]:
    wanted = {
        pod.where: pod.pod.get("nodeSelector", {}).get("moera.io/pool")
        for pod in workloads(manifests)
    }
    return [
        f"{where}: no node pool gives moera.io/pool={pool}"
        for where, pool in wanted.items()
        if pool and pool not in pools
    ]


def collisions(renders: Mapping[str, list[Manifest]]) -> list[str]:
    """Return objects that two overlays share: the second run would overwrite the first's."""
    owners: dict[str, str] = {}
    found = []
    for overlay, manifests in renders.items():
        for manifest in manifests:
            name = name_of(manifest)
            if owners.setdefault(name, overlay) != overlay:
                found.append(f"{name} is in {owners[name]} and in {overlay}")
    return found


def show(report: Report) -> str:
    """Return a report as text."""
    lines = [f"{report.name}: {report.objects} objects, {report.validated} validated by schema"]
    lines += [f"  not validated, no schema: {kind}" for kind in report.unvalidated]
    lines += [f"  PROBLEM {problem}" for problem in report.problems]
    return "\n".join(lines)
