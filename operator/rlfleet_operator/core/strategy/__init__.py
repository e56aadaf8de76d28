"""Which commands are due: rolling, barrier, a pause by the trainer, LoRA. Pure."""
