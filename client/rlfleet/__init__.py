"""What a trainer imports: publish the versions of a run."""
