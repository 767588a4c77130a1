"""Schemas: built-in kinds by `kubernetes-validate`, custom kinds by CRDs from a folder."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from deploy.check.manifests import Manifest, name_of

VERSIONS = ("1.31", "1.37")
"""Oldest Kubernetes that the manifests are for, and the newest one with a schema."""

BUILT_IN_GROUPS = ("", "apps", "policy", "batch", "autoscaling")


@dataclass
class Outcome:
    """What schemas said of a set of objects."""

    problems: list[str] = field(default_factory=list)
    validated: int = 0
    unvalidated: set[str] = field(default_factory=set)
    """apiVersion/Kind of custom kinds for which no schema was given."""


def load_crds(folder: Path | None) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the schema of each (apiVersion, kind) that the CRDs in `folder` define.

    Raises:
        ValueError: the folder does not exist or holds no CRD.
    """
    if folder is None:
        return {}
    schemas = {}
    for file in sorted(folder.glob("*.y*ml")):
        for crd in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if not crd or crd.get("kind") != "CustomResourceDefinition":
                continue
            group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
            for version in crd["spec"]["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                schemas[f"{group}/{version['name']}", kind] = _strict(schema)
    if not schemas:
        raise ValueError(f"{folder} holds no CustomResourceDefinition; pass a folder of CRD files")
    return schemas


def validate(manifests: list[Manifest], crds: dict[tuple[str, str], dict[str, Any]]) -> Outcome:
    """Check every object against its schema; unknown fields are problems too."""
    outcome = Outcome()
    for manifest in manifests:
        version, kind = manifest["apiVersion"], manifest["kind"]
        group = version.rpartition("/")[0]
        if group in BUILT_IN_GROUPS or (group.endswith(".k8s.io") and (version, kind) not in crds):
            if not _built_in(manifest, outcome):
                outcome.unvalidated.add(f"{version} {kind}")
        elif (version, kind) in crds:
            outcome.validated += 1
            _custom(manifest, crds[version, kind], outcome)
        else:
            outcome.unvalidated.add(f"{version} {kind}")
    return outcome


def _built_in(manifest: Manifest, outcome: Outcome) -> bool:
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            outcome.problems.append(_explain(manifest, error, f"Kubernetes {version}"))
        except kubernetes_validate.SchemaNotFoundError:
            return False
    outcome.validated += 1
    return True


def _custom(manifest: Manifest, schema: dict[str, Any], outcome: Outcome) -> None:
    for error in jsonschema.Draft202012Validator(schema).iter_errors(manifest):
        outcome.problems.append(_explain(manifest, error, manifest["apiVersion"]))


def _explain(manifest: Manifest, error: jsonschema.ValidationError, schema: str) -> str:
    path = ".".join(str(part) for part in error.absolute_path)
    return f"{name_of(manifest)}: {path or '(top)'}: {error.message[:300]} ({schema})"


def _strict(schema: Any) -> Any:
    """Make an OpenAPI v3 schema JSON Schema: fields not listed are refused, as `kubectl` does."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    strict = {key: value for key, value in schema.items() if key not in ("properties", "format")}
    strict = {key: _strict(value) for key, value in strict.items()}
    if "properties" in schema:
        strict["properties"] = {key: _strict(item) for key, item in schema["properties"].items()}
        open_ended = schema.get("x-kubernetes-preserve-unknown-fields")
        # Inside anyOf and friends a schema only adds conditions; its parent lists the fields.
        if schema.get("type") == "object" and not open_ended:
            strict.setdefault("additionalProperties", False)
    if schema.get("nullable") and "type" in strict:
        strict["type"] = [strict["type"], "null"]
    return strict
