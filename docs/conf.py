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

# The contents are not in README.md, as pages on GitHub need none. Their order is that of the table in
# docs/README.md; a page that is missing in the table is an error.
FOLDERS = {"Guide": "guide", "Reference": "reference", "Internals": "internals"}
OTHERS = ["docs/README", "CONTRIBUTING", "csrc/README", "tests/README"]


def _listed(folder: str) -> list[str]:
    """The pages of a folder of docs/, in the order in which docs/README.md names them."""
    text = (ROOT / "docs" / "README.md").read_text()
    return [f"docs/{page}" for page in re.findall(rf"\(({folder}/[\w/]+)\.md\)", text)]


def _add_contents(app, name, source):
    # A link that shows the name of its file shows the title of the page.
    source[0] = re.sub(r"\[(?:[\w.]+/)*\w+\.md\]\((?=[^)#]+\))", "[](", source[0])
    if name == root_doc:
        groups = {"Start": OTHERS} | {title: _listed(name) for title, name in FOLDERS.items()}
        results = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
        groups["Measurements"] = [f"benchmarks/results/{path.stem}" for path in results]
        for title, pages in groups.items():
            source[0] += (f"\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {title}\n\n"
                          + "\n".join(pages) + "\n```\n")


def setup(app):
    """Called by Sphinx: adds the contents to the first page."""
    app.connect("source-read", _add_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
