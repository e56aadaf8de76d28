"""Which workers read a version from the store, and along which lines it is forwarded. Pure."""
