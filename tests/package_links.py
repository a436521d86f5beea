"""Packages that share the Python files of the checkout and have an extension of their own."""

from pathlib import Path

# Not from tests.helpers, which imports poptorch: it may not be built yet.
ROOT = Path(__file__).resolve().parents[1]


def link_python_files(package: Path) -> None:
    """Fills a folder with links to poptorch's Python files; other links in it go."""
    source = ROOT / "poptorch"
    for old in package.rglob("*"):
        if old.is_symlink():
            old.unlink()
    for file in sorted(source.rglob("*")):
        if file.suffix in (".py", ".pyi", ".typed"):
            link = package / file.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
