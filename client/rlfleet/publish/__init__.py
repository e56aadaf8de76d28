"""Publishes versions, full or as deltas, on a volume or in a bucket; none is ever seen half."""

from rlfleet.publish.errors import PublishError
from rlfleet.publish.options import Options
from rlfleet.publish.publisher import Publication, Publisher

__all__ = ["Options", "Publication", "PublishError", "Publisher"]
