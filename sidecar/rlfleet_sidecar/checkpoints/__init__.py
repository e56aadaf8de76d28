"""Whether a version is whole and loads into the boot model, decided before anything is paused."""
