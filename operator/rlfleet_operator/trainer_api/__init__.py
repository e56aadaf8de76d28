"""The fleet API: routes for trainers that pause, update and resume a whole fleet."""
