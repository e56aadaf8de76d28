"""The fields of an RLInferenceFleet as models; crds/ is generated from them. Pure."""
