"""The error that a trainer sees."""


class PublishError(Exception):
    """A version was not published; the message says why, and what to do."""
