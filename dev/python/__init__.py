"""The locked Python packages, and the environment that is made of them."""
