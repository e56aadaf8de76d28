"""The manifest that a person commits."""

from typing import Any

import yaml


def fleet_manifest(namespace: str, **spec: Any) -> str:
    """Return a fleet's manifest with the least spec and ``spec``."""
    least = {
        "model": {"name": "qwen", "path": "/models/qwen"},
        "weights": {"path": "/weights/{version}"},
    }
    made = {
        "apiVersion": "rlfleet.dev/v1alpha1",
        "kind": "RLInferenceFleet",
        "metadata": {"name": "qwen", "namespace": namespace},
        "spec": least | spec,
    }
    return yaml.safe_dump(made)
