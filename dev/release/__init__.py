"""What a release is made of: python -m dev.release, which `make release` runs."""
