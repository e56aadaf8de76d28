"""What trainers ask of a whole fleet, and how they are answered. Pure."""
