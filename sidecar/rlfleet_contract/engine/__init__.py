"""What a sidecar and its engine extension exchange: the gate, and how tensors are read."""
