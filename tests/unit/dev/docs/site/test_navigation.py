"""Every page stands in the site's navigation once, by what users ask."""

from dev.docs.site import navigation


def test_a_page_stands_in_one_group() -> None:
    pages = ["README.md", "docs/how-to/install.md", "docs/how-to/storage.md", "docs/glossary.md"]

    assert navigation.grouped(pages) == {
        "Start": ["README.md", "docs/how-to/install.md"],
        "Storage and sizes": ["docs/how-to/storage.md"],
        "Reference": ["docs/glossary.md"],
    }


def test_a_page_that_no_group_names_is_not_lost() -> None:
    assert navigation.grouped(["docs/how-to/of-tomorrow.md"]) == {
        "More": ["docs/how-to/of-tomorrow.md"]
    }


def test_a_folder_begins_with_its_readme() -> None:
    pages = ["docs/runbooks/A.md", "docs/runbooks/README.md"]

    assert navigation.grouped(pages)["On call"] == ["docs/runbooks/README.md", "docs/runbooks/A.md"]


def test_the_first_page_has_the_introduction_and_each_group() -> None:
    made = navigation.index(["README.md"], "# rlfleet\n\nA sentence.\n")

    assert made == (
        "# rlfleet\n\nA sentence.\n\n```{toctree}\n:maxdepth: 1\n:caption: Start\n\n/README\n```\n"
    )


def test_a_folder_s_readme_stands_for_its_pages() -> None:
    pages = ["docs/runbooks/A.md", "docs/runbooks/README.md", "examples/a/README.md"]

    assert navigation.below("docs/runbooks/README.md", pages) == ["docs/runbooks/A.md"]
    assert "/docs/runbooks/A\n" not in navigation.index(pages, "# rlfleet")
