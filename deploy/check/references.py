"""References: every name that an object mentions exists, every selector selects something."""

from collections.abc import Iterator

from deploy.check.manifests import Manifest, Workload, matches, name_of, of_kind, workloads

EXTERNAL_SECRETS = "moera.io/external-secrets"
"""Annotation: names of Secrets that the operator creates, because no manifest may hold them."""


def problems(manifests: list[Manifest]) -> list[str]:
    """Return every reference that leads nowhere."""
    names = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for item in manifests
    }
    pods = workloads(manifests)
    found = [*_namespaces(manifests, names)]
    for workload in pods:
        external = _external(manifests, workload)
        for kind, name in _mentions(workload):
            if (kind, workload.namespace, name) not in names and (kind, name) not in external:
                found.append(f"{workload.where}: {kind} {name!r} does not exist")
    for manifest in manifests:
        found += [f"{name_of(manifest)}: {text}" for text in _selectors(manifest, pods)]
        found += [f"{name_of(manifest)}: {text}" for text in _custom(manifest, manifests, names)]
    return found


def _namespaces(manifests: list[Manifest], names: set[tuple[str, str, str]]) -> Iterator[str]:
    for manifest in manifests:
        namespace = manifest["metadata"].get("namespace")
        if namespace and ("Namespace", "", namespace) not in names:
            yield f"{name_of(manifest)}: Namespace {namespace!r} does not exist"


def _external(manifests: list[Manifest], workload: Workload) -> set[tuple[str, str]]:
    listed = ""
    for manifest in manifests:
        if name_of(manifest) == workload.where:
            listed = manifest["metadata"].get("annotations", {}).get(EXTERNAL_SECRETS, "")
    return {("Secret", name.strip()) for name in listed.split(",")}


def _mentions(workload: Workload) -> Iterator[tuple[str, str]]:
    pod = workload.pod
    yield "ServiceAccount", pod.get("serviceAccountName", "default")
    for volume in pod.get("volumes", []):
        if "configMap" in volume and not volume["configMap"].get("optional"):
            yield "ConfigMap", volume["configMap"]["name"]
        if "secret" in volume and not volume["secret"].get("optional"):
            yield "Secret", volume["secret"]["secretName"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    for container in workload.containers():
        sources = [item.get("valueFrom", {}) for item in container.get("env", [])]
        for source in [*sources, *container.get("envFrom", [])]:
            for key, kind in (
                ("configMapKeyRef", "ConfigMap"),
                ("configMapRef", "ConfigMap"),
                ("secretKeyRef", "Secret"),
                ("secretRef", "Secret"),
            ):
                if key in source and not source[key].get("optional"):
                    yield kind, source[key]["name"]


def _selectors(manifest: Manifest, pods: list[Workload]) -> Iterator[str]:
    kind, spec = manifest["kind"], manifest.get("spec", {})
    near = [pod for pod in pods if pod.namespace == manifest["metadata"].get("namespace")]
    if kind == "Service":
        yield from _service(spec, near)
    elif kind in ("Deployment", "StatefulSet"):
        for pod in near:
            own = pod.where == name_of(manifest)
            if matches(spec["selector"], pod.labels) is not own:
                fault = "does not match its own pods" if own else f"matches {pod.where} too"
                yield f"its selector {spec['selector']} {fault}"
    elif kind in ("PodDisruptionBudget", "NetworkPolicy"):
        selector = spec["selector" if kind == "PodDisruptionBudget" else "podSelector"]
        if not any(matches(selector, pod.labels) for pod in near):
            yield f"its selector {selector} matches no pod"


def _service(spec: Manifest, near: list[Workload]) -> Iterator[str]:
    selected = [pod for pod in near if matches({"matchLabels": spec["selector"]}, pod.labels)]
    if not selected:
        yield f"its selector {spec['selector']} matches no pod"
    for pod in selected:
        for port in spec["ports"]:
            target = port.get("targetPort", port["port"])
            if target not in (*pod.ports(), *pod.ports().values()):
                yield f"port {target!r} is not one of {pod.where}"


def _custom(
    manifest: Manifest, manifests: list[Manifest], names: set[tuple[str, str, str]]
) -> Iterator[str]:
    namespace = manifest["metadata"].get("namespace", "")
    if manifest["kind"] == "PersistentVolumeClaim":
        volume = manifest["spec"].get("volumeName")
        if volume and ("PersistentVolume", "", volume) not in names:
            yield f"PersistentVolume {volume!r} does not exist"
    if manifest["kind"] != "ScaledObject":
        return
    spec = manifest["spec"]
    target = spec["scaleTargetRef"]["name"]
    owners = [
        item
        for item in of_kind(manifests, spec["scaleTargetRef"].get("kind", "Deployment"))
        if item["metadata"]["name"] == target and item["metadata"].get("namespace") == namespace
    ]
    if not owners:
        yield f"scales {target!r}, which does not exist"
    elif "replicas" in owners[0]["spec"]:
        yield f"{target} states replicas too: each apply would undo what KEDA scaled"
    for trigger in spec["triggers"]:
        auth = trigger.get("authenticationRef", {}).get("name")
        if auth and ("TriggerAuthentication", namespace, auth) not in names:
            yield f"TriggerAuthentication {auth!r} does not exist"
