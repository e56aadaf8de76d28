"""What a fleet is made of, as frozen values: pods, workers, actions. Pure."""
