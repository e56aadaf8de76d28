"""The admin sidecar: it changes the weights of its engine safely."""
