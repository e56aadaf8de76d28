"""What a proof asks of an engine, and how the answers are evaluated. Pure."""
