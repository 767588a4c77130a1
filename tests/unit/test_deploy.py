"""Each fault put into rendered manifests is found; the overlays as they are have none."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.check import manifests, network, references, report, run_file, schemas, security
from deploy.check.manifests import Manifest
from deploy.images import pin
from moera import config
from moera.env.entry import load

Objects = list[Manifest]
Mutation = Callable[[Objects], object]


@pytest.fixture(scope="session")
def renders() -> dict[str, Objects]:
    return {folder.name: manifests.render(folder) for folder in manifests.overlays()}


@pytest.mark.parametrize("folder", manifests.overlays(), ids=lambda folder: folder.name)
def test_the_services_can_read_the_run_file_and_make_its_environments(folder: Path) -> None:
    run: Any = config.load_files(config.run_config_model(), [folder / "run.toml"])
    assert run.learner.linger
    for environment in (each for each in run.environment if each.entry):
        assert load(environment.entry, environment.params)().tasks(environment.train_split)


@pytest.fixture(scope="session")
def pools() -> set[str]:
    return report.node_pools(manifests.render(manifests.NODE_POOLS))


def pick(objects: Objects, kind: str, name: str) -> Manifest:
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
    return found


def drop(objects: Objects, kind: str, name: str) -> None:
    objects.remove(pick(objects, kind, name))


def pod(objects: Objects, name: str) -> Manifest:
    return pick(objects, "Deployment", name)["spec"]["template"]["spec"]


def learner(objects: Objects) -> Manifest:
    group = pick(objects, "LeaderWorkerSet", "learner")["spec"]["leaderWorkerTemplate"]
    return group["workerTemplate"]["spec"]


def set_run(objects: Objects, old: str, new: str) -> None:
    for item in objects:
        if "run.toml" in item.get("data", {}):
            assert old in item["data"]["run.toml"]
            item["data"]["run.toml"] = item["data"]["run.toml"].replace(old, new)


def found(objects: Objects) -> list[str]:
    """All problems but those of schemas, which a test of their own covers."""
    storage = run_file.read(objects).get("storage", {}).get("uri", "")
    return [
        *references.problems(objects),
        *security.problems(objects),
        *network.problems(objects, storage),
        *run_file.problems(objects),
    ]


def test_overlays_render_and_have_no_problem(renders: dict[str, Objects], pools: set[str]) -> None:
    assert set(renders) == {"eks", "eks-all", "eks-small", "local"}
    for name, objects in renders.items():
        assert report.check_run(name, objects, {}, pools).problems == []


def test_overlays_share_no_object(renders: dict[str, Objects]) -> None:
    assert report.collisions(renders) == []
    two = {"first": renders["local"], "second": renders["local"]}
    assert len(report.collisions(two)) == len(renders["local"])


def _misspelt(objects: Objects) -> None:
    pod(objects, "cache")["volumes"][0]["configMap"]["name"] = "moera-rnu"


def _foreign_peer(objects: Objects) -> None:
    policy = pick(objects, "NetworkPolicy", "cache")
    peers = [peer for rule in policy["spec"]["ingress"] for peer in rule["from"]]
    for peer in peers:
        peer.get("namespaceSelector", {}).get("matchLabels", {}).pop("moera.io/run", None)


def _envs_may_call_cache(objects: Objects) -> None:
    ingress = pick(objects, "NetworkPolicy", "cache")["spec"]["ingress"][0]["from"][0]
    ingress["podSelector"] = {}
    egress = copy.deepcopy(pick(objects, "NetworkPolicy", "rollout"))
    egress["metadata"]["name"] = "envs-out"
    egress["spec"]["podSelector"]["matchLabels"][manifests.COMPONENT] = "envs"
    objects.append(egress)


def _metadata_service(objects: Objects) -> None:
    for policy in objects:
        if policy["kind"] == "NetworkPolicy" and policy["metadata"]["name"] == "s3":
            policy["spec"]["egress"][0]["to"][0]["ipBlock"].pop("except")


def _no_default_deny(objects: Objects) -> None:
    for item in list(objects):
        if item["metadata"]["name"] == "default-deny":
            objects.remove(item)


def _scaled_and_fixed(objects: Objects) -> None:
    pick(objects, "Deployment", "rollout")["spec"]["replicas"] = 3


def _other_run_key(objects: Objects) -> None:
    trigger = pick(objects, "ScaledObject", "rollout")["spec"]["triggers"][0]
    trigger["metadata"]["listName"] = "moera:{other}:pending"


FAULTS: dict[str, tuple[Mutation, str]] = {
    "missing config map": (_misspelt, r"cache: ConfigMap 'moera-rnu' does not exist"),
    "missing service account": (
        lambda o: drop(o, "ServiceAccount", "envs"),
        r"envs: ServiceAccount 'envs' does not exist",
    ),
    "missing claim": (
        lambda o: pod(o, "rollout")["volumes"][2]["persistentVolumeClaim"].update(claimName="x"),
        r"rollout: PersistentVolumeClaim 'x' does not exist",
    ),
    "secret that is not optional": (
        lambda o: pod(o, "cache")["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"].pop(
            "optional"
        ),
        r"cache: Secret 'moera-redis' does not exist",
    ),
    "service selector": (
        lambda o: pick(o, "Service", "cache")["spec"]["selector"].update(
            {"app.kubernetes.io/name": "cash"}
        ),
        r"Service .*cache: its selector .*cash.* matches no pod",
    ),
    "service port": (
        lambda o: pick(o, "Service", "learner-api")["spec"]["ports"][0].update(targetPort="http"),
        r"learner-api: port 'http' is not one of LeaderWorkerSet",
    ),
    "deployment selector": (
        lambda o: pick(o, "Deployment", "envs")["spec"]["selector"]["matchLabels"].update(
            {"app.kubernetes.io/name": "env"}
        ),
        r"Deployment .*envs: its selector .* does not match its own pods",
    ),
    "disruption budget of nothing": (
        lambda o: pick(o, "PodDisruptionBudget", "redis")["spec"]["selector"].update(
            matchLabels={"a": "b"}
        ),
        r"PodDisruptionBudget .*redis: its selector .* matches no pod",
    ),
    "scaler and replicas": (_scaled_and_fixed, r"rollout states replicas too"),
    "privileged": (
        lambda o: pod(o, "envs")["containers"][0]["securityContext"].update(privileged=True),
        r"envs: container envs is privileged",
    ),
    "root": (
        lambda o: pod(o, "rollout")["securityContext"].update(runAsUser=0),
        r"rollout: must run as a user other than root",
    ),
    "capability without EFA": (
        lambda o: learner(o)["containers"][0]["securityContext"]["capabilities"].update(
            add=["IPC_LOCK"]
        ),
        r"learner: container learner adds IPC_LOCK",
    ),
    "host folder": (
        lambda o: pod(o, "cache")["volumes"].append({"name": "h", "hostPath": {"path": "/"}}),
        r"cache: volume 'h' of type hostPath is not restricted",
    ),
    "namespace not restricted": (
        lambda o: pick(o, "Namespace", "moera-eks-small")["metadata"]["labels"].update(
            {security.ENFORCE: "baseline"}
        ),
        r"Namespace moera-eks-small: must enforce restricted",
    ),
    "latest": (
        lambda o: pod(o, "cache")["containers"][0].update(image="moera/cache:latest"),
        r"image moera/cache:latest of cache needs a version tag",
    ),
    "no tag on a registry with a port": (
        lambda o: pod(o, "cache")["containers"][0].update(image="host:5000/moera/cache"),
        r"image host:5000/moera/cache of cache needs",
    ),
    "no memory limit": (
        lambda o: pod(o, "envs")["containers"][0]["resources"].pop("limits"),
        r"container envs has no memory limit",
    ),
    "missing edge": (
        lambda o: pick(o, "NetworkPolicy", "rollout")["spec"]["egress"].pop(0),
        r"edge .*rollout -> .*cache: missing on port 7101",
    ),
    "missing edge between namespaces": (
        lambda o: pick(o, "NetworkPolicy", "envs")["spec"]["ingress"].pop(1),
        r"edge LeaderWorkerSet .*learner -> .*envs: missing on port 7102",
    ),
    "edge too many": (_envs_may_call_cache, r"edge .*/envs -> .*/cache: allowed on port 7101"),
    "any port": (
        lambda o: [
            rule.pop("ports")
            for name, way in (("cache", "ingress"), ("rollout", "egress"))
            for rule in pick(o, "NetworkPolicy", name)["spec"][way][:1]
        ],
        r"edge .*/rollout -> .*/cache: allowed on port 65000",
    ),
    "another run's learner": (
        _foreign_peer,
        r"cache: a pod like LeaderWorkerSet .* in another namespace may call port 7101",
    ),
    "no default deny": (_no_default_deny, r"learner: no network policy denies by default"),
    "instance metadata": (_metadata_service, r"may reach the instance metadata service"),
    "no S3": (
        lambda o: [o.remove(p) for p in list(o) if p["metadata"]["name"] == "s3"],
        r"rollout: no egress to 0\.0\.0\.0/0 on port 443",
    ),
    "run file does not parse": (
        lambda o: set_run(o, "[run]", "[run"),
        r"run\.toml is not valid TOML",
    ),
    "unknown section": (
        lambda o: set_run(o, "[storage]", "[store]"),
        r"run\.toml: unknown section \[store\]",
    ),
    "run id and label": (
        lambda o: set_run(o, 'id = "eks-small"', 'id = "other"'),
        r"label moera\.io/run is 'eks-small', but \[run\] id is 'other'",
    ),
    "run id and scaler": (_other_run_key, r"'moera:\{other\}:pending' is not a key of the run"),
    "objects of another run": (
        lambda o: set_run(o, "/runs/eks-small", "/runs/other"),
        r"\[storage\] uri 's3://moera-bucket/runs/other' needs a folder 'eks-small'",
    ),
    "address of no service": (
        lambda o: set_run(o, "//redis.", "//reddis."),
        r"\[cache\] redis_url = 'reddis\..*' is no Service",
    ),
    "password in the run file": (
        lambda o: set_run(o, "redis://", "redis://:secret@"),
        r"\[cache\] redis_url holds credentials",
    ),
    "drain longer than the grace": (
        lambda o: pod(o, "rollout").update(terminationGracePeriodSeconds=95),
        r"terminationGracePeriodSeconds 95 is less than \[rollout\] drain_s 90 and 10 s",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(renders: dict[str, Objects], fault: str) -> None:
    mutate, expected = FAULTS[fault]
    objects = copy.deepcopy(renders["eks-small"])
    mutate(objects)
    problems = found(objects)
    assert any(re.search(expected, problem) for problem in problems), problems


def test_a_pool_that_no_node_has_is_found(renders: dict[str, Objects]) -> None:
    problems = report.check_run("eks", renders["eks"], {}, {"cpu", "memory", "rollout"}).problems
    assert problems == [
        "LeaderWorkerSet moera-eks-learner/learner: no node pool gives moera.io/pool=learner"
    ]


def test_a_built_in_kind_with_a_misspelt_field_is_refused(renders: dict[str, Objects]) -> None:
    service = copy.deepcopy(pick(renders["local"], "Service", "cache"))
    service["spec"]["selectr"] = {}
    (first, second) = schemas.validate([service], {}).problems
    assert "selectr" in first and "(Kubernetes 1.31)" in first
    assert "selectr" in second and "(Kubernetes 1.37)" in second


CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: keda.sh
  names: {kind: ScaledObject}
  versions:
    - name: v1alpha1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            metadata: {type: object}
            spec:
              type: object
              required: [scaleTargetRef]
              properties:
                minReplicaCount: {type: integer, format: int32}
                scaleTargetRef:
                  type: object
                  properties: {name: {type: string}}
"""


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"scaleTargetRef": {"name": "x"}, "minReplicaCount": 1}, None),
        ({"scaleTargetRef": {"nmae": "x"}}, "spec.scaleTargetRef: .*'nmae' was unexpected"),
        ({"minReplicaCount": 1}, "spec: 'scaleTargetRef' is a required property"),
        ({"scaleTargetRef": {}, "minReplicaCount": "1"}, "spec.minReplicaCount: '1' is not of"),
    ],
)
def test_a_custom_kind_is_validated_by_its_definition(
    tmp_path: Path, spec: dict[str, Any], message: str | None
) -> None:
    (tmp_path / "crd.yaml").write_text(CRD, encoding="utf-8")
    item = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "a"}}
    outcome = schemas.validate([{**item, "spec": spec}], schemas.load_crds(tmp_path))
    assert outcome.unvalidated == set()
    assert len(outcome.problems) == (message is not None)
    assert message is None or re.search(message, outcome.problems[0])


def test_a_custom_kind_without_a_definition_is_listed(renders: dict[str, Objects]) -> None:
    assert schemas.validate(renders["local"], {}).unvalidated == {
        "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet"
    }


def test_a_folder_without_definitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no CustomResourceDefinition"):
        schemas.load_crds(tmp_path)


def test_a_broken_kustomization_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [absent.yaml]\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"absent\.yaml"):
        manifests.render(tmp_path)


def test_pinning_replaces_the_tag_and_nothing_else() -> None:
    text = (manifests.K8S / "overlays/eks-small/kustomization.yaml").read_text(encoding="utf-8")
    digest = "sha256:" + "0123456789abcdef" * 4
    before = yaml.safe_load(text)
    after = yaml.safe_load(pin.pin(text, [f"moera/envs=example.com/moera/envs@{digest}"]))
    expected = {"name": "moera/envs", "newName": "example.com/moera/envs", "digest": digest}
    assert [i for i in after["images"] if i["name"] == "moera/envs"] == [expected]
    assert [i for i in after.pop("images") if i["name"] != "moera/envs"] == [
        i for i in before.pop("images") if i["name"] != "moera/envs"
    ]
    assert after == before


@pytest.mark.parametrize("wrong", ["moera/envs", "moera/envs=x:1", "moera/envs=x@sha256:12"])
def test_a_pin_without_a_digest_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="is not name=repository@sha256"):
        pin.pin("images:\n  - name: moera/envs\n", [wrong])
