"""LoRA adapters: which are wanted, checked, copied and served."""
