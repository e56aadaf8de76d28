"""The fleet API, by which trainers pause, update and resume a whole fleet."""
