"""Network policies allow exactly the edges of the design, and no run reaches another.

The policies are evaluated as a cluster does: a connection needs the sender's egress and the
receiver's ingress. Peers are pods; address ranges (`ipBlock`) are compared with a table of their
own, because which pod has which address is not known.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deploy.check.manifests import RUN, Manifest, Workload, matches, of_kind, workloads
from deploy.check.security import uses_efa

PORTS = {
    "cache": 7101,
    "envs": 7102,
    "rollout": 7104,
    "redis": 6379,
    "otel-collector": 4317,
}
"""The port that each callee is called on; nobody calls the learner from inside the cluster."""

EDGES = {
    ("rollout", "cache"),
    ("rollout", "envs"),
    ("learner", "cache"),
    ("learner", "envs"),
    ("cache", "redis"),
    ("cache", "otel-collector"),
    ("envs", "otel-collector"),
    ("learner", "otel-collector"),
    ("rollout", "otel-collector"),
}
"""Who calls whom (docs: section Network of deploy-eks.md)."""

AGENT_MODE = ("envs", "rollout")
"""Allowed where the component `agent-mode` is used."""

ANYWHERE = "0.0.0.0/0"
POD_IDENTITY = "169.254.170.23/32"
METADATA = "169.254.0.0/16"
"""Link-local addresses: with the instance metadata service a pod could take the node's role."""

_OTHER_PORT = 65_000
_OUTSIDE = {
    "dns": ("kube-system", {"k8s-app": "kube-dns"}),
    "keda": ("keda", {"app": "keda-operator"}),
}


@dataclass(frozen=True)
class Policies:
    """The network policies of a render."""

    manifests: list[Manifest]

    def allow(self, source: Workload, target: Workload, port: int, protocol: str = "TCP") -> bool:
        """Tell whether pods of `source` may open a connection to `port` of `target`."""
        return self._side("Egress", source, target, (port, protocol)) and self._side(
            "Ingress", target, source, (port, protocol)
        )

    def ranges(self, pod: Workload) -> Iterator[tuple[str, int | None, list[str]]]:
        """Yield (address range, port, exceptions) for each egress rule by address."""
        for policy in self._of("Egress", pod):
            for rule in policy["spec"].get("egress", []):
                if not rule.get("to"):
                    yield ANYWHERE, None, []
                for peer in rule.get("to", []):
                    block = peer.get("ipBlock")
                    for port in rule.get("ports", [{}]) if block else ():
                        yield block["cidr"], port.get("port"), block.get("except", [])

    def open_to_addresses(self, pod: Workload) -> bool:
        """Tell whether any ingress rule lets in an address range or everyone."""
        return any(
            not rule.get("from") or any("ipBlock" in peer for peer in rule["from"])
            for policy in self._of("Ingress", pod)
            for rule in policy["spec"].get("ingress", [])
        )

    def isolated(self, pod: Workload) -> bool:
        """Tell whether both directions are denied unless allowed."""
        return all(any(True for _ in self._of(way, pod)) for way in ("Egress", "Ingress"))

    def _of(self, direction: str, pod: Workload) -> Iterator[Manifest]:
        for policy in of_kind(self.manifests, "NetworkPolicy"):
            same = policy["metadata"].get("namespace") == pod.namespace
            applies = same and direction in policy["spec"]["policyTypes"]
            if applies and matches(policy["spec"].get("podSelector", {}), pod.labels):
                yield policy

    def _side(self, direction: str, pod: Workload, peer: Workload, port: tuple[int, str]) -> bool:
        policies = list(self._of(direction, pod))
        if not policies:
            return True
        rules, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
        callee = peer if direction == "Egress" else pod
        return any(
            _peer(rule.get(peers), policy, peer) and _port(rule.get("ports"), port, callee)
            for policy in policies
            for rule in policy["spec"].get(rules, [])
        )


def _peer(peers: list[Manifest] | None, policy: Manifest, pod: Workload) -> bool:
    if not peers:
        return True
    for peer in peers:
        if "ipBlock" in peer:
            continue
        if "namespaceSelector" in peer:
            near = matches(peer["namespaceSelector"], pod.namespace_labels)
        else:
            near = policy["metadata"].get("namespace") == pod.namespace
        if near and matches(peer.get("podSelector", {}), pod.labels):
            return True
    return False


def _port(rules: list[Manifest] | None, port: tuple[int, str], callee: Workload) -> bool:
    if not rules:
        return True
    for rule in rules:
        wanted = rule.get("port")
        if isinstance(wanted, str):
            wanted = callee.ports().get(wanted)
        last = rule.get("endPort", wanted)
        in_range = wanted is None or wanted <= port[0] <= last
        if in_range and rule.get("protocol", "TCP") == port[1]:
            return True
    return False


def problems(manifests: list[Manifest], storage_uri: str) -> list[str]:
    """Return missing and excess edges. `storage_uri` is [storage] uri of the run."""
    policies, pods = Policies(manifests), workloads(manifests)
    found = [
        f"{pod.where}: no network policy denies by default"
        for pod in pods
        if not policies.isolated(pod)
    ]
    found += [
        text for source in pods for target in pods for text in _edge(policies, source, target)
    ]
    for pod in pods:
        found += [f"{pod.where}: {text}" for text in _strangers(policies, pod, pods)]
        found += [f"{pod.where}: {text}" for text in _outside(policies, pod, manifests)]
        found += [f"{pod.where}: {text}" for text in _addresses(policies, pod, pods, storage_uri)]
    return found


def _edge(policies: Policies, source: Workload, target: Workload) -> Iterator[str]:
    pair = (source.component, target.component)
    name = f"edge {source.where} -> {target.where}"
    port = PORTS.get(target.component)
    if pair == ("learner", "learner") and uses_efa(source):
        if not policies.allow(source, target, _OTHER_PORT):
            yield f"{name}: missing; collectives need any port"
        return
    if pair in EDGES and port and not policies.allow(source, target, port):
        yield f"{name}: missing on port {port}"
    for number in {*target.ports().values(), _OTHER_PORT}:
        expected = pair in EDGES | {AGENT_MODE} and number == port
        if not expected and policies.allow(source, target, number):
            yield f"{name}: allowed on port {number}, but it is no edge of the design"


def _strangers(policies: Policies, pod: Workload, pods: list[Workload]) -> Iterator[str]:
    """The same pods of another run, and of another namespace with this run's pod labels."""
    for other in pods:
        spaces: tuple[Mapping[str, str], ...] = (
            {**other.namespace_labels, RUN: "another-run"},
            {"kubernetes.io/metadata.name": "default"},
        )
        for labels in spaces:
            stranger = replace(other, namespace="elsewhere", namespace_labels=labels)
            for number in pod.ports().values():
                if policies.allow(stranger, pod, number):
                    yield f"a pod like {other.where} in another namespace may call port {number}"
            if policies.allow(pod, stranger, PORTS.get(other.component, _OTHER_PORT)):
                yield f"may call a pod like {other.where} in another namespace"


def _outside(policies: Policies, pod: Workload, manifests: list[Manifest]) -> Iterator[str]:
    dns, keda = (
        Workload(name, namespace, name, labels, {"kubernetes.io/metadata.name": namespace}, {})
        for name, (namespace, labels) in _OUTSIDE.items()
    )
    for protocol in ("UDP", "TCP"):
        if not policies.allow(pod, dns, 53, protocol):
            yield f"cannot ask DNS over {protocol}"
    scaled = any(of_kind(manifests, "ScaledObject")) and pod.component == "redis"
    for number in pod.ports().values():
        if policies.allow(keda, pod, number) is not scaled:
            yield f"KEDA {'cannot' if scaled else 'may'} call port {number}"
    if policies.open_to_addresses(pod):
        yield "an ingress rule lets in more than pods"


def _addresses(
    policies: Policies, pod: Workload, pods: list[Workload], storage_uri: str
) -> Iterator[str]:
    needed: set[tuple[str, Any]] = set()
    if storage_uri.startswith("s3://") and pod.component in ("cache", "learner", "rollout"):
        needed = {(ANYWHERE, 443), (POD_IDENTITY, 80)}
    if pod.component == "otel-collector":
        needed = {(ANYWHERE, 443), (ANYWHERE, 4317)}
    found = set()
    for cidr, port, exceptions in policies.ranges(pod):
        found.add((cidr, port))
        if cidr == ANYWHERE and METADATA not in exceptions:
            yield f"may reach the instance metadata service: except {METADATA}"
    managed_redis = pod.component == "cache" and not any(p.component == "redis" for p in pods)
    if managed_redis:
        if not any(port == PORTS["redis"] for _, port in found):
            yield "no egress to Redis, inside or outside the cluster"
        found = {item for item in found if item[1] != PORTS["redis"]}
    for cidr, port in sorted(needed - found):
        yield f"no egress to {cidr} on port {port}"
    own_list = pod.component == "envs"
    for cidr, port in sorted(found - needed, key=str):
        if not own_list or cidr == ANYWHERE or port is None:
            yield f"egress to {cidr} on port {port} is no edge of the design"
