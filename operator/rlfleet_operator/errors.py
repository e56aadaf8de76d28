"""The errors of the operator.

    OperatorError
    ├── NotLeading         another process may lead: stop, send no further request
    ├── Retryable          the same call may succeed later
    │   ├── Conflict       another client wrote the object first: read it again
    │   └── Unreachable    no answer, or none in time
    ├── Refused            the same call will fail again
    │   ├── Forbidden      RBAC does not allow it in this namespace
    │   ├── TooLarge       the object exceeds the API server's size limit
    │   └── Missing        the object does not exist
    └── WorkerProblem      a sidecar's error; its code says whether to retry

Two modules translate library errors into these: kube/client.py and workers/client.py.
"""

from rlfleet_contract.worker.problems import Problem


class OperatorError(Exception):
    """The base of all errors here."""


class NotLeading(OperatorError):  # noqa: N818 - the tree reads as a sentence
    """The process has lost the Lease, or a driver with a higher epoch exists."""


class Retryable(OperatorError):  # noqa: N818 - the same
    """The same call may succeed later."""


class Conflict(Retryable):
    """Another client wrote the object first."""


class Unreachable(Retryable):
    """No answer, none in time, or none that can be parsed."""


class Refused(OperatorError):  # noqa: N818 - the same
    """The same call will fail again."""


class Forbidden(Refused):
    """RBAC does not allow the call in this namespace."""


class TooLarge(Refused):
    """The object exceeds the API server's size limit."""


class Missing(Refused):
    """The object does not exist."""


class WorkerProblem(OperatorError):  # noqa: N818 - the contract's word
    """A sidecar answered with a problem; its code says whether to retry."""

    def __init__(self, problem: Problem) -> None:
        """Use the problem's code and message as the error's text."""
        super().__init__(f"{problem.code}: {problem.message}")
        self.problem = problem
