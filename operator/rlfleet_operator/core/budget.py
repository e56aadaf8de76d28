"""How many workers may be out at once; integers only."""


def resolve(limit: int | str, replicas: int) -> int:
    """Return ``maxUnavailable`` as a number of workers: percentages round down, at least 1."""
    if isinstance(limit, str):
        limit = replicas * int(limit.removesuffix("%")) // 100
    return max(1, limit)


def left(limit: int, out: int) -> int:
    """Return how many more workers may be taken out when ``out`` are out already."""
    return max(0, limit - out)
