"""The fields of an RLInferenceFleet as models; crds/ is generated from them. Pure.

A field of status is computed in core/status/fleet.py; the columns of `kubectl get` stand in
dev/docs/crd.py (CONTRIBUTING.md, "Add a status field").
"""
