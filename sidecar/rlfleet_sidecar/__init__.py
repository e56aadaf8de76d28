"""The admin sidecar: it changes the weights of the one engine beside it, safely."""
