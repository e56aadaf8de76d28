"""One loop per fleet: observe, plan, publish, act, wait; and what all loops share."""
