"""What trainers request of a whole fleet, and the replies. Pure."""
