"""Pages in headless Chromium. A page that loads something or writes to the console fails its test.

``make browser`` installs what this needs and runs the files ``check_*.py``. Pictures of the pages
are in build/browser.
"""

import contextlib
import shutil

import pytest

from poptorch._reports.page import render
from tests.helpers import ROOT

PICTURES = ROOT / "build" / "browser"
DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True,
         "is_mobile": True}


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright  # the default tests do without

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        # The sandbox of Chromium does not start for root.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_file(browser):
    """A function that opens a page by its path, which may end with a query. Keywords are
    playwright's settings of a context, such as ``color_scheme``."""
    problems = []
    with contextlib.ExitStack() as stack:

        def open_it(path, **settings):
            context = browser.new_context(**{**DESKTOP, **settings})
            stack.callback(context.close)
            page = context.new_page()
            page.on("console", lambda message: problems.append(message.text))
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("request", lambda request: problems.append(request.url)
                    if not request.url.startswith(("file:", "data:")) else None)
            page.goto(f"file://{path}")
            return page

        yield open_it
    assert problems == []


@pytest.fixture
def open_page(open_file, tmp_path):
    """A function that opens the page of one report, or of two."""

    def open_it(report, other=None, **settings):
        file = tmp_path / "report.html"
        file.write_text(render(report, other), encoding="utf-8")
        page = open_file(file, **settings)
        page.wait_for_selector("html[data-ready]")
        return page

    return open_it


@pytest.fixture
def picture():
    """A function that keeps a picture of a page, or of one section."""

    def take(page, name, section=None):
        path = PICTURES / f"{name}.png"
        page.mouse.move(0, 0)
        if not section:
            page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
        page.wait_for_timeout(100)
        if section:
            page.locator(f"#{section}").screenshot(path=path)
        else:
            page.screenshot(path=path, full_page=True)

    return take
