"""Pod security: `restricted` everywhere, with the listed exceptions for a learner over EFA."""

import re
from collections.abc import Iterator

from deploy.check.manifests import Manifest, Workload, namespace_labels, workloads

ENFORCE = "pod-security.kubernetes.io/enforce"
EFA = "vpc.amazonaws.com/efa"
EFA_CAPABILITIES = {"IPC_LOCK"}

_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def problems(manifests: list[Manifest]) -> list[str]:
    """Return what breaks restricted pod security or this project's rules for pods."""
    found = []
    pods = workloads(manifests)
    for name, labels in namespace_labels(manifests).items():
        inside = [pod for pod in pods if pod.namespace == name]
        if labels.get(ENFORCE) != "restricted" and not all(uses_efa(pod) for pod in inside):
            found.append(
                f"Namespace {name}: must enforce restricted pod security; "
                "only a namespace whose pods all use EFA may do without"
            )
    for pod in pods:
        rules = (*_pod(pod), *(text for item in pod.containers() for text in _container(item, pod)))
        found += [f"{pod.where}: {text}" for text in rules]
    return found


def uses_efa(pod: Workload) -> bool:
    """Tell whether a pod is the learner with EFA devices: the one with exceptions."""
    limits = [item.get("resources", {}).get("limits", {}) for item in pod.containers()]
    return pod.component == "learner" and any(EFA in limit for limit in limits)


def _pod(pod: Workload) -> Iterator[str]:
    spec, context = pod.pod, pod.pod.get("securityContext", {})
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield f"{key} is not restricted"
    for volume in spec.get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds <= _VOLUMES:
            yield f"volume {volume['name']!r} of type {', '.join(sorted(kinds))} is not restricted"
    if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile must be RuntimeDefault"
    if not uses_efa(pod) and (context.get("runAsNonRoot") is not True or not context["runAsUser"]):
        yield "must run as a user other than root"
    if spec.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken must be false: no service calls the API server"


def _container(container: Manifest, pod: Workload) -> Iterator[str]:
    name, context = container["name"], container.get("securityContext", {})
    if context.get("privileged"):
        yield f"container {name} is privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"container {name} must set allowPrivilegeEscalation: false"
    if context.get("readOnlyRootFilesystem") is not True:
        yield f"container {name} must set readOnlyRootFilesystem: true"
    if not uses_efa(pod) and (
        context.get("runAsNonRoot") is False or context.get("runAsUser") == 0
    ):
        yield f"container {name} must run as a user other than root"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield f"container {name} must drop ALL capabilities"
    excess = set(capabilities.get("add", [])) - (EFA_CAPABILITIES if uses_efa(pod) else set())
    if excess:
        yield f"container {name} adds {', '.join(sorted(excess))}"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield f"container {name} has a hostPort"
    yield from _resources(container)
    if not _pinned(container["image"]):
        yield f"image {container['image']} of {name} needs a version tag or a digest, not :latest"
    if not {"livenessProbe", "readinessProbe"} <= set(container):
        yield f"container {name} needs a livenessProbe and a readinessProbe"


def _resources(container: Manifest) -> Iterator[str]:
    resources = container.get("resources", {})
    for key in ("cpu", "memory"):
        if key not in resources.get("requests", {}):
            yield f"container {container['name']} requests no {key}"
    if "memory" not in resources.get("limits", {}):
        yield f"container {container['name']} has no memory limit"


def _pinned(image: str) -> bool:
    if re.search(r"@sha256:[0-9a-f]{64}$", image):
        return True
    tag = re.search(r":([^:/]+)$", image)
    return bool(tag) and tag[1] != "latest"
