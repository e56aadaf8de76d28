"""What a trainer imports: publish the versions of a run, and drive the fleet that serves them."""
