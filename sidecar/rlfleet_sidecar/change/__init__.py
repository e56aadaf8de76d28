"""One change of weights at a time: its owner, its steps, its end."""
