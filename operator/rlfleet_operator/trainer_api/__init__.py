"""The HTTP address at which trainers pause, update and resume a whole fleet."""
