"""Packages that share all files of the checkout but the extension, and have one of their own."""

from pathlib import Path

# Not from tests.helpers, which imports poptorch: it may not be built yet.
ROOT = Path(__file__).resolve().parents[1]


def link_shared_files(package: Path) -> None:
    """Fills a folder with links to poptorch's Python files, headers and libraries; other links in
    it go."""
    source = ROOT / "poptorch"
    for old in package.rglob("*"):
        if old.is_symlink():
            old.unlink()
    for file in sorted(source.rglob("*")):
        is_library = file.is_relative_to(source / "lib") and not file.name.startswith("_C")
        if file.suffix in (".py", ".pyi", ".typed", ".h") or is_library and file.is_file():
            link = package / file.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
