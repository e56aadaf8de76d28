"""Which commands bring the workers there: rolling, barrier, a pause by the trainer, LoRA. Pure."""
