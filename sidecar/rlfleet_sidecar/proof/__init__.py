"""What a proof asks of an engine, and how its answers are judged. Pure."""
