"""A model fleet that carries out plans without a cluster: previews, tests, examples. Pure."""
