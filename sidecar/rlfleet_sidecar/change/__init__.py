"""One change of weights at a time: who may command it, each of its steps, and how it ends."""
