"""Prometheus and promtool, for the tests of alerts and of the dashboard."""
