"""The report page as a reader uses it: sections, mouse, keyboard, themes, phone width."""

import pytest

from tests.browser.conftest import PHONE
from tests.reports.page.make_report import make_report

SECTIONS = ["summary", "tiles", "memory", "operations", "timeline", "options"]


@pytest.fixture(scope="module")
def report():
    return make_report(ipus=4, ops=200, micro_batches=6)


@pytest.fixture(scope="module")
def large():
    return make_report(ipus=16, ops=10_000, micro_batches=1500)


def view_of(page, section):
    """The visible part of the chart of a section: from, to."""
    script = f"""() => {{
        const chart = [...charts].find((one) => one.view && one.canvas.closest("#{section}"));
        return [chart.view.low, chart.view.high];
    }}"""
    return page.evaluate(script)


def canvas_of(page, section):
    """The large chart of a section, scrolled to."""
    canvas = page.locator(f"#{section} .body canvas").last
    canvas.scroll_into_view_if_needed()
    page.wait_for_timeout(600)  # the scroll ends, and a wheel is no longer part of it
    return canvas


def point(page, section, share, height=0.5):
    """The position at a share of the width of a chart's area."""
    box = canvas_of(page, section).bounding_box()
    return box["x"] + 72 + share * (box["width"] - 84), box["y"] + height * box["height"]


def pixels(page, section):
    return page.evaluate(f"""() => [...document.querySelectorAll("#{section} canvas")].at(-1)
                             .toDataURL()""")


def test_all_sections_have_content(open_page, picture, report):
    page = open_page(report)
    for section in SECTIONS:
        assert len(page.locator(f"#{section} .body").inner_text()) > 20, section
    assert not page.locator("#comparison").is_visible()
    verdict = page.locator(".verdict").inner_text()
    assert "fits on gc200" in verdict and "537\u00a0KiB of 624\u00a0KiB" in verdict
    assert "90\u00a0% interval" in verdict and "samples/s" in verdict
    assert "call 25\u00a0\u00b5s" in page.locator("#summary").inner_text()
    assert "device_iterations" in page.locator("#options").inner_text()
    picture(page, "light")


def test_too_much_memory_is_said_and_shown(open_page, picture):
    page = open_page(make_report(ipus=1, ops=5, micro_batches=1, fits=False))
    assert "does not fit on gc200" in page.locator(".verdict").inner_text()
    assert "tiles above the limit" in page.locator("#tiles").inner_text()
    assert page.locator("#tiles .ipus button").count() == 0
    picture(page, "too_much")


def test_a_large_report_opens_within_a_second(open_page, large, tell):
    times = []
    for _ in range(3):
        page = open_page(large)
        times.append(page.evaluate("performance.getEntriesByName('ready')[0].startTime"))
        page.context.close()
    tell(f"opened in {', '.join(f'{time:.0f} ms' for time in times)}")
    assert min(times) < 1000


def test_a_large_report_in_pictures(open_page, picture, large):
    picture(open_page(large), "large")


def test_a_click_on_a_step_shows_what_is_live(open_page, picture, report):
    page = open_page(report)
    steps = report["ipus"][0]["steps"]
    page.locator("#tiles .ipus button").first.click()
    page.mouse.click(*point(page, "memory", 10.5 / len(steps)))
    detail = page.locator("#memory .detail")
    text = detail.inner_text()
    assert f"Step 10 of IPU 0: {steps[10]['op']}" in text
    assert steps[10]["module"] in text and steps[10]["location"] in text
    live = [value for value in report["ipus"][0]["values"]
            if value["first"] <= 10 <= value["last"]]
    rows = detail.locator("table").last.locator("tbody tr")
    assert rows.count() == len(live)
    largest = max(live, key=lambda value: value["bytes"])
    assert [rows.first.locator("td").nth(column).inner_text() for column in (0, 2, 3)] == [
        largest["name"], largest["module"], largest["location"]]
    picture(page, "step", "memory")


def test_the_keyboard_moves_through_steps(open_page, report):
    page = open_page(report)
    title = page.locator("#memory .detail h3")
    peak = max(report["ipus"], key=lambda ipu: ipu["peak_bytes"])["peak_step"]
    assert title.inner_text().startswith(f"Step {peak} ")
    canvas_of(page, "memory").focus()
    page.keyboard.press("ArrowRight")
    assert title.inner_text().startswith(f"Step {peak + 1} ")
    page.keyboard.press("End")
    assert title.inner_text().startswith("Step 49 ") or title.inner_text().startswith("Step 50 ")
    page.get_by_role("button", name="Go to the peak").click()
    assert title.inner_text().startswith(f"Step {peak} ")
    page.keyboard.press("Home")


def test_the_pointer_over_the_charts_shows_numbers(open_page, report):
    page = open_page(report)
    tip = page.locator("#tip")
    page.mouse.move(*point(page, "tiles", 0.5))
    assert "Tile 736" in tip.inner_text() and "of 624\u00a0KiB" in tip.inner_text()
    page.mouse.move(*point(page, "memory", 0.5))
    assert "activations" in tip.inner_text() and "bert.py:" in tip.inner_text()
    page.mouse.move(*point(page, "timeline", 0.02, 0.2))
    assert "IPU 0, compute: compute" in tip.inner_text()
    assert "task stage0.forward, micro-batch" in tip.inner_text()
    page.mouse.move(2, 2)
    assert not tip.is_visible()


def test_an_ipu_is_chosen_for_both_charts_of_memory(open_page, report):
    page = open_page(report)
    page.locator("#tiles .ipus button").nth(2).click()
    assert "IPU 2 at its peak" in page.locator("#tiles").inner_text()
    assert "of IPU 2" in page.locator("#memory .detail h3").inner_text()
    page.locator("#memory select").select_option("3")
    assert "IPU 3 at its peak" in page.locator("#tiles").inner_text()


def first_cells(page, column):
    rows = page.locator("#operations .rows .line")
    return [rows.nth(row).locator("> *").nth(column).inner_text() for row in range(3)]


def test_the_table_sorts_and_filters(open_page, picture, report):
    page = open_page(report)
    ops = report["ops"]
    table = page.locator("#operations")
    heads = table.get_by_role("columnheader")
    assert heads.nth(6).get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="Line", exact=True).click()
    assert heads.nth(2).get_attribute("aria-sort") == "ascending"
    assert first_cells(page, 2)[0] == min(op["location"] for op in ops)
    page.get_by_role("button", name="Temporary").click()
    most = max(ops, key=lambda op: op["temporary_bytes"])
    assert most["result"] in first_cells(page, 0)[0]
    table.get_by_label("Filter").fill("SOFTMAX layer.1")
    wanted = [op for op in ops if "softmax" in op["op"] and "layer.1" in op["module"]]
    assert f"{len(wanted)} of {len(ops)} operations" in table.locator("[role=status]").inner_text()
    assert all("softmax" in cell for cell in first_cells(page, 0))
    table.get_by_label("Part").select_option("backward")
    wanted = [op for op in wanted if op["part"] == "backward"]
    assert f"{len(wanted)} of" in table.locator("[role=status]").inner_text()
    picture(page, "filtered", "operations")
    table.get_by_label("Filter").fill("no such name")
    assert table.locator(".rows .line").count() == 0


def test_a_row_of_the_table_leads_to_its_step(open_page, picture, report):
    page = open_page(report)
    table = page.locator("#operations .grid")
    table.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    detail = page.locator("#operations .detail")
    first = max(report["ops"], key=lambda op: op["runs"] * (op["compute"] + op["exchange"]))
    assert first["result"] not in detail.inner_text()
    page.keyboard.press("ArrowUp")
    text = detail.inner_text()
    assert first["result"] in text and "compute" in text and first["plan"] in text
    picture(page, "operation", "operations")
    detail.get_by_role("button", name="Show what is live").click()
    assert f"of IPU {first['ipu']}: {first['op']}" in page.locator("#memory .detail").inner_text()


def test_only_visible_rows_of_the_table_exist(open_page, large):
    page = open_page(large)
    rows = page.locator("#operations .rows .line")
    assert 10 < rows.count() < 40
    page.locator("#operations .grid").focus()
    page.keyboard.press("End")
    assert rows.last.get_attribute("aria-rowindex") == str(len(large["ops"]) + 1)
    assert rows.count() < 40


def test_the_timeline_zooms_and_pans(open_page, picture, report):
    page = open_page(report)
    span = report["timeline"]["span"]
    x, y = point(page, "timeline", 0.25)
    whole = pixels(page, "timeline")
    page.mouse.move(x, y)
    for _ in range(4):
        page.mouse.wheel(0, -300)
    page.wait_for_timeout(100)
    low, high = view_of(page, "timeline")
    assert 0 < low < span / 4 < high < span / 2
    assert pixels(page, "timeline") != whole
    picture(page, "timeline", "timeline")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 100, y, steps=4)
    page.mouse.up()
    moved = view_of(page, "timeline")
    assert moved[0] > low and moved[1] - moved[0] == pytest.approx(high - low)
    canvas_of(page, "timeline").focus()
    page.keyboard.press("ArrowLeft")
    assert view_of(page, "timeline")[0] < moved[0]
    page.keyboard.press("-")
    assert view_of(page, "timeline")[1] - view_of(page, "timeline")[0] > high - low
    page.keyboard.press("0")
    assert view_of(page, "timeline") == [0, span]
    page.locator("#timeline").get_by_role("button", name="Zoom in").click()
    assert view_of(page, "timeline")[1] - view_of(page, "timeline")[0] == pytest.approx(span / 2)
    page.locator("#timeline").get_by_role("button", name="Show everything").click()
    assert view_of(page, "timeline") == [0, span]


def test_a_click_on_the_timeline_says_what_runs(open_page, report):
    page = open_page(report)
    page.mouse.click(*point(page, "timeline", 0.02, 0.2))
    text = page.locator("#timeline .detail").inner_text()
    assert "stage0.forward" in text and "takes" in text


def test_the_wheel_scrolls_the_page_where_nothing_is_left_to_zoom_out(open_page, report):
    page = open_page(report)
    page.mouse.move(*point(page, "memory", 0.5))
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 200)
    page.wait_for_timeout(300)
    assert page.evaluate("scrollY") > before
    assert view_of(page, "memory")[0] == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_themes(open_page, picture, report, scheme):
    page = open_page(report, color_scheme=scheme)
    background = "getComputedStyle(document.body).backgroundColor"
    colors = {"light": "rgb(246, 247, 248)", "dark": "rgb(20, 22, 26)"}
    assert page.evaluate(background) == colors.pop(scheme)
    before = pixels(page, "memory")
    if scheme == "dark":
        picture(page, "dark")
    page.locator("#theme").click()
    page.wait_for_timeout(100)
    assert page.evaluate(background) == colors.popitem()[1]
    assert pixels(page, "memory") != before


@pytest.mark.parametrize("reports", [1, 2])
def test_a_phone_needs_no_sideways_scroll(open_page, picture, report, large, reports):
    two = [large | {"title": "A long title of a report that does not end " * 3}, report]
    page = open_page(*(two if reports == 2 else [report]), **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    outside = page.evaluate("""() => [...document.querySelectorAll("main *, header *")]
        .filter((one) => !one.closest(".scroll, nav, .unseen"))
        .filter((one) => one.getBoundingClientRect().right > 391).map((one) => one.outerHTML)""")
    assert outside == []
    page.touchscreen.tap(*point(page, "memory", 0.3))
    assert page.locator("#memory .detail h3").is_visible()
    picture(page, "phone" if reports == 1 else "phone_comparison")


def test_two_reports_are_compared(open_page, picture, report):
    after = make_report(ipus=4, ops=200, micro_batches=6, fits=False, title="proportion 0.2")
    after["options"] = report["options"] | {"device_iterations": 8}
    after["cycles"] *= 1.25
    slow = after["ops"][7]
    slow["compute"] += 1e6
    page = open_page(after, report)
    section = page.locator("#comparison")
    tables = section.locator("table")
    figures = tables.nth(0).inner_text()
    assert "Cycles of a step" in figures and "+25\u00a0%" in figures
    assert "Fits\tyes\tno\tdiffers" in figures
    assert "device_iterations" in tables.nth(2).inner_text()
    assert "precision" not in tables.nth(2).inner_text()
    assert slow["module"] in tables.nth(3).locator("tbody tr").first.inner_text()
    assert tables.nth(3).locator("tbody tr").count() == 1
    picture(page, "comparison", "comparison")
    assert "does not fit" in page.locator(".verdict").inner_text()
    page.get_by_role("button", name="Before").click()
    assert "does not fit" not in page.locator(".verdict").inner_text()


def test_all_controls_have_names_and_take_the_keyboard(open_page, report):
    page = open_page(report)
    nameless = page.evaluate("""() =>
        [...document.querySelectorAll("button, canvas, select, input")]
        .filter((one) => !one.closest("[aria-hidden=true], button canvas"))
        .filter((one) => !(one.textContent || one.getAttribute("aria-label")
                           || one.closest("label"))).map((one) => one.outerHTML)""")
    assert nameless == []
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("""() => document.activeElement.closest("section")?.id
            + " " + document.activeElement.tagName"""))
    assert {"tiles CANVAS", "memory CANVAS", "timeline CANVAS", "tiles BUTTON", "memory SELECT",
            "operations INPUT", "operations DIV", "operations BUTTON"} <= reached


def test_names_are_shown_as_text(open_page):
    report = make_report(ipus=1, ops=4, title="<i>t</i> </script> &amp;")
    evil = "<img src=x onerror=console.log(1)>"
    for row in [*report["ops"], *report["ipus"][0]["values"]]:
        row |= {"module": evil, "location": evil}
    report["options"] = {evil: evil}
    page = open_page(report, report)
    assert page.locator("h1").inner_text() == f"{report['title']} and {report['title']}"
    page.locator("#operations .rows .line").first.click()
    assert page.locator("img, h1 i").count() == 0
    assert evil in page.locator("#operations .detail").inner_text()
    assert evil in page.locator("#options").inner_text()


@pytest.mark.parametrize("empty", ["ops", "rows", "options"])
def test_an_empty_part_says_so(open_page, empty):
    report = make_report(ipus=1, ops=4)
    if empty == "ops":
        report["ops"] = []
        report["ipus"][0] |= {"steps": [], "values": []}
    elif empty == "rows":
        report["timeline"] |= {"rows": [], "span": 0}
    else:
        report["options"] = {}
    page = open_page(report)
    words = {"ops": "This IPU runs no operations.", "rows": "The report has no timeline.",
             "options": "All options have their defaults."}
    assert words[empty] in page.locator("main").inner_text()
