"""What a trainer imports: publish the versions of a run, and drive the fleet that serves them."""

__version__ = "0.2.0"
