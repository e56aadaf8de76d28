"""Pages as the site's generator takes them."""

import pytest

from dev.docs.site import staging

FOLDERS = {"examples/models", "examples/models/storage", "docs"}
PAGES = {"examples/models/README.md", "docs/how-to/a.md"}


def staged(page: str, text: str) -> str:
    return staging.staged(page, text, FOLDERS.__contains__, PAGES.__contains__)


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("see [a](b.md#c)", "see [a](b.md#c)"),
        ("[models](../../examples/models)", "[models](../../examples/models/README.md)"),
        ("[its storage](../../examples/models/storage) has", "its storage has"),
        ("[there](https://example.com/docs)", "[there](https://example.com/docs)"),
        ("[here](#words)", "[here](#words)"),
    ],
    ids=["a page", "a folder with a page", "a folder without one", "elsewhere", "this page"],
)
def test_a_link_leads_where_a_site_can_follow(written: str, made: str) -> None:
    assert staged("docs/how-to/a.md", written) == f"{made}\n"


def test_a_diagram_is_shown_as_its_text() -> None:
    assert staged("docs/a.md", "```mermaid\nflowchart LR\n```") == "```text\nflowchart LR\n```\n"


def test_the_files_that_a_page_links_to_are_known() -> None:
    text = "[a](../b.md) ![](shot.png) [c](https://example.com) [d](#e)"

    assert list(staging.targets("docs/a.md", text)) == ["b.md", "docs/shot.png"]
