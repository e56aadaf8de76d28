"""Everything that can go wrong on the operator's side.

    OperatorError
    ├── NotLeading         another may drive by now: end, send nothing more
    ├── Retryable          the same call may succeed later
    │   ├── Conflict       somebody wrote in between: observe again
    │   └── Unreachable    nobody answered
    └── Refused            the same call will fail again
        ├── Forbidden      nobody has let us do this, here
        ├── TooLarge       the object takes more bytes than the API server keeps
        └── Missing        the object is not there

Library errors become these at two places: kube/client.py and workers/client.py.
"""

from rlfleet_contract.worker.problems import Problem


class OperatorError(Exception):
    """The root of this package's errors."""


class NotLeading(OperatorError):  # noqa: N818 - the tree reads as a sentence
    """Another may drive: this process leads no more, or its epoch is not the last."""


class Retryable(OperatorError):  # noqa: N818 - the same
    """The same call may succeed later."""


class Conflict(Retryable):
    """Somebody wrote in between."""


class Unreachable(Retryable):
    """Nobody answered, or not in time."""


class Refused(OperatorError):  # noqa: N818 - the same
    """The same call will fail again."""


class Forbidden(Refused):
    """No role lets us do this, or not in this namespace."""


class TooLarge(Refused):
    """The object takes more bytes than the API server keeps."""


class Missing(Refused):
    """The object is not there."""


class WorkerProblem(OperatorError):  # noqa: N818 - the contract's word
    """A sidecar answered with a problem; its code tells whether to try again."""

    def __init__(self, problem: Problem) -> None:
        """Keep the problem, in the sidecar's words."""
        super().__init__(f"{problem.code}: {problem.message}")
        self.problem = problem
