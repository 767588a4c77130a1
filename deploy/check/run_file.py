"""The run file in the manifests: it parses, and agrees with what is around it."""

import tomllib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from deploy.check.manifests import RUN, Manifest, name_of, of_kind, workloads
from moera.config import run_config_model

STOP_MARGIN_S = 10.0
"""Seconds between the end of a drain and the kill."""


def read(manifests: list[Manifest]) -> dict[str, Any]:
    """Return the parsed run file, or {} if there is none or it does not parse."""
    for file in _files(manifests):
        try:
            return tomllib.loads(file)
        except tomllib.TOMLDecodeError:
            return {}
    return {}


def _files(manifests: list[Manifest]) -> list[str]:
    maps = [item.get("data", {}) for item in of_kind(manifests, "ConfigMap")]
    return [data["run.toml"] for data in maps if "run.toml" in data]


def problems(manifests: list[Manifest]) -> list[str]:
    """Return what is wrong with the run file or disagrees with it."""
    files = _files(manifests)
    if not files:
        return ["no ConfigMap holds run.toml"]
    if len(set(files)) > 1:
        return ["run.toml differs between namespaces: a run has one configuration"]
    try:
        run = tomllib.loads(files[0])
    except tomllib.TOMLDecodeError as error:
        return [f"run.toml is not valid TOML: {error}"]
    found = [
        f"run.toml: unknown section [{name}]"
        for name in sorted(run.keys() - run_config_model().model_fields.keys())
    ]
    for rule in (_identity, _addresses, _storage, _drain):
        found += rule(run, manifests)
    return found


def _identity(run: dict[str, Any], manifests: list[Manifest]) -> Iterator[str]:
    run_id = run.get("run", {}).get("id", "")
    if not run_id:
        yield "run.toml: [run] id must be set: replicas would each make one of their own"
    for manifest in manifests:
        label = manifest["metadata"].get("labels", {}).get(RUN)
        if label != run_id:
            yield f"{name_of(manifest)}: label {RUN} is {label!r}, but [run] id is {run_id!r}"
    for scaler in of_kind(manifests, "ScaledObject"):
        for trigger in scaler["spec"]["triggers"]:
            key = trigger["metadata"].get("listName", "")
            if not key.startswith(f"moera:{{{run_id}}}:"):
                yield f"{name_of(scaler)}: {key!r} is not a key of the run {run_id!r}"


def _addresses(run: dict[str, Any], manifests: list[Manifest]) -> Iterator[str]:
    served = set()
    for service in of_kind(manifests, "Service"):
        metadata = service["metadata"]
        host = f"{metadata['name']}.{metadata['namespace']}.svc.cluster.local"
        served |= {f"{host}:{port['port']}" for port in service["spec"]["ports"]}
    wanted = {
        f"[addresses] {key}": run.get("addresses", {}).get(key, "")
        for key in ("cache", "envs", "learner")
    }
    for index, environment in enumerate(run.get("environment", [])):
        if environment.get("address"):
            wanted[f"[[environment]] {index} address"] = environment["address"]
    for key, section, name in (
        ("redis_url", "cache", "[cache] redis_url"),
        ("otlp_endpoint", "telemetry", "[telemetry] otlp_endpoint"),
    ):
        url = urlsplit(run.get(section, {}).get(key, ""))
        if url.password or url.username:
            yield f"run.toml: {name} holds credentials; put them in a Secret"
        if url.hostname and url.hostname.endswith(".svc.cluster.local"):
            wanted[name] = f"{url.hostname}:{url.port}"
    for name, address in wanted.items():
        if address not in served:
            yield f"run.toml: {name} = {address!r} is no Service; there are {sorted(served)}"


def _storage(run: dict[str, Any], manifests: list[Manifest]) -> Iterator[str]:
    uri = run.get("storage", {}).get("uri", "")
    if not uri.startswith(("s3://", "file:///")):
        yield f"run.toml: [storage] uri {uri!r} must be s3://... or a mounted file:///..."
    run_id = run.get("run", {}).get("id", "")
    if uri.startswith("s3://") and run_id not in uri.split("/"):
        yield f"run.toml: [storage] uri {uri!r} needs a folder {run_id!r}: runs share the bucket"
    mounted = [urlsplit(uri).path] if uri.startswith("file:///") else []
    for pod in workloads(manifests):
        mounts = {m["mountPath"] for c in pod.containers() for m in c.get("volumeMounts", [])}
        needs = mounted if pod.component in ("cache", "learner", "rollout") else []
        for path in needs:
            if path not in mounts:
                yield f"{pod.where}: {path} of [storage] uri is not mounted"


def _drain(run: dict[str, Any], manifests: list[Manifest]) -> Iterator[str]:
    drain_s = float(run.get("rollout", {}).get("drain_s", 0))
    for pod in workloads(manifests):
        grace_s = pod.pod.get("terminationGracePeriodSeconds", 30)
        if pod.component == "rollout" and grace_s < drain_s + STOP_MARGIN_S:
            yield (
                f"{pod.where}: terminationGracePeriodSeconds {grace_s} is less than [rollout] "
                f"drain_s {drain_s:g} and {STOP_MARGIN_S:g} s to stop"
            )
