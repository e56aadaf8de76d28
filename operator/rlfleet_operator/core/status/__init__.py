"""The status, conditions and Events of a fleet. Pure."""
