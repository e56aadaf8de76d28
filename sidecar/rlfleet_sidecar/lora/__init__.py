"""LoRA adapters beside the weights: which are wanted, checked, copied and served."""
