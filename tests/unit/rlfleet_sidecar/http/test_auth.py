"""The mounted token, while a kubelet replaces it."""

import threading
from pathlib import Path

import pytest

from rlfleet_sidecar.http.auth import FleetToken
from tests.fakes.mount import mount

STAGED = {"token": "old", "next": "new", "revision": "1"}
SWITCHED = {"token": "new", "previous": "old", "revision": "2"}


def test_no_accepted_token_is_rejected_while_the_files_are_replaced(tmp_path: Path) -> None:
    mount(tmp_path, STAGED)
    credentials = FleetToken(tmp_path / "token")
    ended = threading.Event()

    def rotate() -> None:
        for step in range(300):
            mount(tmp_path, STAGED if step % 2 else SWITCHED)
        ended.set()

    rotating = threading.Thread(target=rotate)
    rotating.start()
    rejected, asked, seen = 0, 0, set()
    while not ended.is_set():
        for token in ("old", "new"):
            asked += 1
            rejected += not credentials.admits(f"Bearer {token}")
        seen.add(credentials.revision())
    rotating.join()

    assert rejected == 0, asked
    assert seen <= {"1", "2"}


def test_a_secret_that_was_replaced_counts_at_once(tmp_path: Path) -> None:
    mount(tmp_path, STAGED)
    credentials = FleetToken(tmp_path / "token")
    assert [credentials.admits(f"Bearer {one}") for one in ("old", "new")] == [True, True]

    mount(tmp_path, {"token": "new", "revision": "3"})

    assert [credentials.admits(f"Bearer {one}") for one in ("old", "new")] == [False, True]
    assert credentials.revision() == "3"


@pytest.mark.parametrize("key", ["next", "previous"])
def test_without_the_token_to_send_no_other_is_accepted(tmp_path: Path, key: str) -> None:
    mount(tmp_path, {key: "another"})

    assert not FleetToken(tmp_path / "token").admits("Bearer another")


@pytest.mark.parametrize("key", ["token", "next"])
def test_an_empty_file_accepts_no_empty_token(tmp_path: Path, key: str) -> None:
    mount(tmp_path, STAGED | {key: " \n"})
    credentials = FleetToken(tmp_path / "token")

    assert not any(credentials.admits(says) for says in (None, "", "Bearer", "Bearer "))


def test_a_token_that_cannot_be_read_admits_no_caller_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    credentials = FleetToken(tmp_path / "token")
    assert not credentials.admits("Bearer old")

    (tmp_path / "token").rmdir()
    (tmp_path / "token").write_text("old")

    assert credentials.admits("Bearer old")
