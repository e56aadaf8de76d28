"""Settings of Sphinx. Nothing of the site comes from another host."""

project = "rlfleet"
extensions = ["myst_parser"]
root_doc = "index"
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "rlfleet"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
# As on GitHub: a heading has an anchor of its words.
myst_heading_anchors = 4
# Blocks are YAML, commands and Python, and say so only where a reader needs it.
highlight_language = "none"
suppress_warnings = [
    # docs/reference/http.md has a part for each server.
    "myst.header",
]
