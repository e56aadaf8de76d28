"""The files and headers that both servers send."""

import json
import re

import pytest

from rlfleet_view import web


@pytest.mark.parametrize("name", ["", *sorted(web.NAMES)])
def test_every_file_of_the_page_is_there(name: str) -> None:
    found = web.page_file(name)

    assert found is not None
    assert found.content


@pytest.mark.parametrize("name", ["nothing.js", "../fleet.py", "reasons.json", "%2e%2e/fleet.py"])
def test_nothing_else_is_served(name: str) -> None:
    assert web.page_file(name) is None


@pytest.mark.parametrize("name", sorted(web.NAMES - {"icon.svg"}))
def test_no_file_names_another_host(name: str) -> None:
    found = web.page_file(name)
    assert found is not None
    addresses = set(re.findall(r"\w+://[^\s\"'`]+", found.content.decode()))

    assert addresses <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", sorted(web.NAMES))
def test_no_file_makes_html_of_strings(name: str) -> None:
    found = web.page_file(name)
    assert found is not None

    assert not re.search(
        rb"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|srcdoc| style=| on\w+=",
        found.content,
    )


def test_an_event_is_one_line_of_json_whatever_stands_in_it() -> None:
    said = web.event("fleet", {"message": "a\n\ndata: b\r\u2028"}).decode()
    kind, data, *rest = said.split("\n")

    assert (kind, rest) == ("event: fleet", ["", ""])
    assert json.loads(data.removeprefix("data: ")) == {"message": "a\n\ndata: b\r\u2028"}
