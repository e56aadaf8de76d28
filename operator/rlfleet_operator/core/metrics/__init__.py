"""What a fleet's metrics show: gauges of its state, and what reports add to counters. Pure."""
