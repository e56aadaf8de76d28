"""The operator: reconciles RLInferenceFleet objects into workers and their weights."""
