"""The observed state of a fleet and the actions of a plan, as frozen values. Pure."""
