"""LoRA adapters: checked, copied, served and restored."""
