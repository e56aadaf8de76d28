"""The tour of docs/tour.md, run as it is read: python -m dev.tour, which `make tour` calls."""
