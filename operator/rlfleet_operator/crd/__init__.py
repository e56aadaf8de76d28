"""The fields of an RLInferenceFleet as models; the definition in crds/ is made of them. Pure."""
