"""The cause of an engine's end is written where Kubernetes keeps it, and nothing else is."""

import logging
from collections.abc import Iterator
from importlib.metadata import entry_points
from logging.config import dictConfig
from pathlib import Path

import pytest

from rlfleet_view.last_words import last_words

CORE, RANK = "vllm.v1.engine.core", "vllm.v1.executor.multiproc_executor"
CLIENT = "vllm.v1.engine.core_client"
CAUSE = "No available memory for the cache blocks."


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = tmp_path / "termination-log"
    made.touch()
    monkeypatch.setenv("RLFLEET_TERMINATION_LOG", str(made))
    # As vLLM's load_general_plugins finds it.
    (plugin,) = entry_points(group="vllm.general_plugins", name="rlfleet")
    plugin.load()()
    # As vLLM does in each process.
    loggers = {"vllm": {"handlers": [], "propagate": False}}
    dictConfig({"version": 1, "disable_existing_loggers": False, "loggers": loggers})
    yield made
    for name in (CORE, RANK, CLIENT):
        logging.getLogger(name).filters.clear()
    logging.getLogger("vllm").propagate = True


def failed(logger: str, message: str, error: Exception) -> None:
    """Log an error as vLLM does."""
    try:
        raise error
    except type(error):
        logging.getLogger(logger).exception(message)


@pytest.mark.parametrize(
    ("logger", "message"),
    [
        (CORE, "EngineCore failed to start."),
        (RANK, "WorkerProc failed to start."),
        (CORE, "EngineCore encountered a fatal error."),
    ],
)
def test_status_gets_the_cause(file: Path, logger: str, message: str) -> None:
    failed(logger, message, ValueError(CAUSE))

    assert last_words({"exitCode": 1, "message": file.read_text()}) == f"ValueError: {CAUSE}"


def test_the_first_error_is_the_cause(file: Path) -> None:
    failed(RANK, "WorkerProc failed to start.", ValueError(CAUSE))
    failed(CORE, "EngineCore failed to start.", RuntimeError("see the stack trace above"))

    assert file.read_text() == f"ValueError: {CAUSE}\n"


@pytest.mark.parametrize(
    ("logger", "message"),
    [
        (
            RANK,
            "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
        ),
        (CLIENT, "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup"),
    ],
)
def test_a_killed_process_is_the_cause(file: Path, logger: str, message: str) -> None:
    logging.getLogger(logger).warning(message)
    follower = AssertionError("collective_rpc should not be called on follower node")
    failed(CORE, "EngineCore encountered a fatal error.", follower)

    assert file.read_text() == f"{message}\n"


def test_an_error_that_ends_nothing_is_not_written(file: Path) -> None:
    failed(CORE, "Error in preprocessing a request", ValueError(CAUSE))
    logging.getLogger(CORE).error("EngineCore failed to start.")

    assert file.read_text() == ""


def test_a_long_error_is_cut(file: Path) -> None:
    failed(CORE, "EngineCore failed to start.", ValueError("é" * 5000))

    assert len(file.read_bytes()) == 2048


def test_no_file_is_created(file: Path) -> None:
    file.unlink()

    failed(CORE, "EngineCore failed to start.", ValueError(CAUSE))

    assert not file.exists()
