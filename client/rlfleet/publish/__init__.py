"""Publishes versions, full or as deltas, on a volume or in a bucket; none is ever seen half."""

try:
    from rlfleet.publish.errors import PublishError
    from rlfleet.publish.options import Options
    from rlfleet.publish.publisher import Publication, Publisher
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error.name} is not installed; run pip install 'rlfleet[publish]'", name=error.name
    ) from error

__all__ = ["Options", "Publication", "PublishError", "Publisher"]
