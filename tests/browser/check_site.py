"""The site that ``make site`` builds: phone width, menu, search, dark mode, wide code."""

import re

import pytest

from tests.browser.conftest import PHONE
from tests.helpers import ROOT

SITE = ROOT / "build" / "site"
PAGES = ["index.html", "docs/README.html", "docs/guide/ipus/pipelines.html",
         "docs/reference/options.html", "docs/internals/architecture.html"]


@pytest.mark.parametrize("path", PAGES)
def test_a_phone_needs_no_sideways_scroll(open_file, path):
    page = open_file(SITE / path, **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_phone_has_the_menu_and_the_search(open_file, picture):
    page = open_file(SITE / "index.html", **PHONE)
    picture(page, "site_phone")
    search = page.locator(".sidebar-search")
    assert not search.is_visible() or search.bounding_box()["x"] < 0
    page.locator(".mobile-header .nav-overlay-icon").click()
    page.wait_for_timeout(500)
    assert search.bounding_box()["x"] >= 0
    page.get_by_role("button", name="Several IPUs").click()
    page.get_by_role("link", name="Pipelines", exact=True).click()
    assert page.url.endswith("docs/guide/ipus/pipelines.html")


def test_lines_of_100_columns_of_code_are_not_cut(open_file, picture):
    page = open_file(SITE / "docs" / "guide" / "ipus" / "pipelines.html")
    picture(page, "site_wide")
    pre = page.locator("article pre").first
    width = pre.evaluate("""(one) => {
        one.textContent = "x".repeat(100);
        return one.scrollWidth - one.clientWidth;
    }""")
    assert width == 0


def test_groups_of_the_navigation_fold(open_file):
    page = open_file(SITE / "docs" / "guide" / "ipus" / "pipelines.html")
    internals = page.get_by_role("button", name="Internals")
    link = page.locator(".sidebar-tree").get_by_role("link", name="Replicated tensor sharding")
    assert internals.get_attribute("aria-expanded") == "false"
    assert link.is_visible()
    page.get_by_role("button", name="Several IPUs").click()
    assert not link.is_visible()
    internals.click()
    assert internals.get_attribute("aria-expanded") == "true"


def _menu(page):
    """The addresses of the pages below each caption of the menu."""
    return dict(page.evaluate("""Array.from(document.querySelectorAll(".sidebar-tree .caption"),
        (one) => [one.textContent, Array.from(
            one.nextElementSibling.querySelectorAll("a"), (link) => link.href)])"""))


def test_each_folder_of_the_guide_has_one_caption(open_file):
    page = open_file(SITE / "index.html")
    folders = {caption: set(re.findall(r"/guide/(\w+)/", " ".join(links)))
               for caption, links in _menu(page).items()}
    of_the_guide = [(caption, *names) for caption, names in folders.items() if names]
    assert of_the_guide == [
        ("Start", "start"), ("Training", "training"), ("Data", "data"), ("Several IPUs", "ipus"),
        ("Memory and speed", "performance"), ("Deployment", "deploy"), ("Porting", "porting"),
        ("Troubleshooting", "debugging"), ("Extending", "extending")]
    assert {names[1] for names in of_the_guide} == {
        path.name for path in (ROOT / "docs" / "guide").iterdir() if list(path.glob("*.md"))}


@pytest.mark.parametrize("path, caption", [
    ("docs/guide/ipus/pipelines.html", "Several IPUs"), ("docs/guide/start/state.html", "Start"),
    ("docs/reference/options.html", "Reference"), ("index.html", "Start")])
def test_only_the_group_of_the_page_is_open(open_file, path, caption):
    page = open_file(SITE / path)
    opened = page.locator(".sidebar-tree .caption button[aria-expanded=true]").all_text_contents()
    assert opened == [caption]


def test_the_menu_starts_with_the_first_pages(open_file):
    page = open_file(SITE / "index.html")
    names = [link.rpartition("/")[2] for link in _menu(page)["Start"]]
    assert names[:3] == ["README.html", "install.html", "first_model.html"]
    page.get_by_role("link", name="A first model", exact=True).first.click()
    assert page.url.endswith("docs/guide/start/first_model.html")


def test_the_search_finds_a_name(open_file, picture):
    page = open_file(SITE / "search.html?q=gradientAccumulation")
    page.wait_for_selector("#search-results li")
    assert page.locator("#search-results a", has_text="Options").count() > 0
    picture(page, "site_search")


def test_the_page_with_the_word_in_its_title_comes_first(open_file):
    page = open_file(SITE / "search.html?q=checkpoint")
    page.wait_for_selector("#search-results li")
    page.wait_for_timeout(1000)  # results appear one by one
    assert page.locator("#search-results li a").first.inner_text().startswith("Checkpoints:")


def test_lists_of_pages_show_titles(open_file):
    page = open_file(SITE / "docs" / "README.html")
    texts = page.locator("article table a").all_inner_texts()
    assert "Pipelines" in texts
    assert [text for text in texts if text.endswith(".md")] == []


def test_dark_mode(open_file, picture):
    page = open_file(SITE / "index.html", color_scheme="dark")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(19, 20, 22)"
    picture(page, "site_dark")
