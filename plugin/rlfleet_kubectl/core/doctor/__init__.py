"""What is wrong with an installation or a fleet, and what mends it. Pure: kubectl fetched it."""
