"""Settings of Sphinx for ``make site``: the pages as they are, with a table of contents and search.

The root of the sources is the checkout, so the links between README.md, docs/ and the other pages
work in the site as they do in the repository.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSION = re.search(r'__version__ = "(.*)"', (ROOT / "poptorch" / "version.py").read_text())[1]

project = "poptorch"
version = release = VERSION
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown"}
include_patterns = ["README.md", "CONTRIBUTING.md", "csrc/README.md", "tests/README.md",
                    "benchmarks/results/*.md", "docs/**.md"]
exclude_patterns = [".*", "build", "dist"]

myst_heading_anchors = 4  # a link to a heading that is not there is a warning, and so an error
suppress_warnings = ["myst.header"]  # pages of the reference may leave out a level
highlight_language = "none"

html_theme = "furo"
html_title = f"poptorch {VERSION}"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_copyright = False
html_copy_source = False
html_show_search_summary = False  # a page that is opened as a file may not read the others

# README.md has no contents, because pages on GitHub need none. The site takes them from the tables in
# docs/README.md: a caption for each bold row of the guide, for the reference and for the internals. A
# page that is not in a table is an error.
CAPTION_OR_PAGE = re.compile(
    r"^## (?P<heading>.+)|^\| \*\*(?P<folder>.+?)\*\* \||\((?P<page>[a-z]+/[\w/]+)\.md\)", re.MULTILINE)


def _contents() -> dict[str, list[str]]:
    """The pages of each caption, in the order of the menu."""
    groups, pages = {}, []
    for found in CAPTION_OR_PAGE.finditer((ROOT / "docs" / "README.md").read_text()):
        if found["page"]:
            pages.append(f"docs/{found['page']}")
        else:
            pages = groups[found["heading"] or found["folder"]] = []
    groups["Start"].insert(0, "docs/README")
    groups["Contributing"] = ["CONTRIBUTING", "csrc/README", "tests/README"]
    results = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
    groups["Measurements"] = [f"benchmarks/results/{path.stem}" for path in results]
    return {caption: pages for caption, pages in groups.items() if pages}


def _add_contents(app, name, source):
    # A link that shows the name of its file shows the title of the page.
    source[0] = re.sub(r"\[(?:[\w.]+/)*\w+\.md\]\((?=[^)#]+\))", "[](", source[0])
    if name == root_doc:
        for caption, pages in _contents().items():
            source[0] += (f"\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {caption}\n\n"
                          + "\n".join(pages) + "\n```\n")


def setup(app):
    """Called by Sphinx: adds the contents to the first page."""
    app.connect("source-read", _add_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
