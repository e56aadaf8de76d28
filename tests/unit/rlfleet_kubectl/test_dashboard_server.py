"""The dashboard's server on a port that is taken, and with clients that leave."""

import socket
from collections.abc import Iterator

import pytest

from rlfleet_kubectl.dashboard.board import Board
from rlfleet_kubectl.dashboard.server import ADDRESS, Dashboard
from rlfleet_kubectl.kubectl import Kubectl


@pytest.fixture
def server() -> Iterator[Dashboard]:
    with Dashboard(0, Kubectl(), Board(), "here") as made:
        yield made


def test_a_port_that_is_taken_is_an_error_of_the_system() -> None:
    with socket.create_server((ADDRESS, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            Dashboard(port, Kubectl(), Board(), "here")


@pytest.mark.parametrize("gone", [BrokenPipeError(), ConnectionResetError(), TimeoutError()])
def test_nothing_is_printed_about_a_client_that_is_gone(
    server: Dashboard, capsys: pytest.CaptureFixture[str], gone: OSError
) -> None:
    try:
        raise gone
    except OSError:
        server.handle_error(None, (ADDRESS, 1))

    assert capsys.readouterr().err == ""


def test_a_defect_of_a_handler_is_printed(
    server: Dashboard, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        int("defect")
    except ValueError:
        server.handle_error(None, (ADDRESS, 1))

    assert "ValueError: invalid literal" in capsys.readouterr().err
