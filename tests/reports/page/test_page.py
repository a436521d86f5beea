"""The report page without a browser: size, what it loads, its data. ``make browser`` opens it."""

import base64
import json
import re
import zlib

import pytest

from poptorch._reports.page import FOLDER, SCRIPTS, render
from tests.reports.page.make_report import make_report

LIMIT_BYTES = 1_500_000
LIMIT_LINES = 2_500


def data_of(page: str) -> dict:
    """The packed reports in a page."""
    text = re.search(r'id="data">([^<]*)</script>', page)[1]
    return json.loads(zlib.decompress(base64.b64decode(text)))


def unpacked(value, strings):
    """What ``unpack.js`` makes of a value."""
    if isinstance(value, list):
        return [unpacked(one, strings) for one in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("text"), list):
        return [strings[number] for number in value["text"]]
    if "columns" in value:
        columns = {key: unpacked(column, strings) for key, column in value["columns"].items()}
        return [{key: column[row] for key, column in columns.items()}
                for row in range(value["rows"])]
    return {key: unpacked(one, strings) for key, one in value.items()}


def reports_of(page: str) -> list[dict]:
    """The reports in a page, without their timelines."""
    data = data_of(page)
    return [unpacked({key: value for key, value in report.items() if key != "timeline"},
                     data["strings"]) for report in data["reports"]]


@pytest.fixture(scope="module")
def large():
    """As BERT-large in training: 10,000 operations, 16 IPUs, about 100,000 rows of time."""
    return make_report(ipus=16, ops=10_000, micro_batches=1500)


def test_a_large_report_is_small_enough(large):
    page = render(large)
    assert len(large["timeline"]["rows"]) > 95_000
    assert len(page.encode()) < LIMIT_BYTES


def test_two_large_reports_are_small_enough(large):
    other = make_report(ipus=16, ops=10_000, micro_batches=1500, seed=1)
    assert len(render(large, other).encode()) < LIMIT_BYTES


def test_the_page_is_short():
    files = [path for path in FOLDER.iterdir() if path.suffix in (".js", ".css", ".html")]
    assert {path.stem for path in files if path.suffix == ".js"} == set(SCRIPTS)
    assert sum(len(path.read_text().splitlines()) for path in files) <= LIMIT_LINES


def test_nothing_is_loaded_from_elsewhere():
    page = render(make_report())
    assert not re.search(r"https?:|\bsrc=|@import|url\(|\bimport\b|fetch\(|XMLHttpRequest", page)
    assert re.findall(r'href="([^#][^"]*)"', page) == ["data:,"]


def test_equal_reports_give_equal_pages():
    assert render(make_report()) == render(make_report())


def test_the_page_has_the_numbers_of_the_report():
    report = make_report(ipus=2, ops=40)
    [found] = reports_of(render(report))
    for key in ("title", "target", "fits", "cycles", "seconds", "throughput", "host", "options",
                "memory"):
        assert found[key] == report[key]
    for ours, theirs in zip(found["ops"], report["ops"], strict=True):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            near = pytest.approx(value, rel=1e-3) if isinstance(value, float) else value
            assert ours[key] == near
    for ours, theirs in zip(found["ipus"], report["ipus"], strict=True):
        assert ours["peak_bytes"] == theirs["peak_bytes"]
        assert ours["categories"] == theirs["categories"]
        assert len(ours["steps"]) == len(theirs["steps"])
        for one, two in zip(ours["steps"], theirs["steps"], strict=True):
            assert one["id"] == two["id"] and one["tile_bytes"] == two["tile_bytes"]
            assert one["live"] == pytest.approx(two["live"], rel=1e-3)
        for one, two in zip(ours["by_tile"], theirs["by_tile"], strict=True):
            assert 0 <= one - two < 256
        assert sorted(value["name"] for value in ours["values"]) == sorted(
            value["name"] for value in theirs["values"])


def test_the_page_has_the_rows_of_the_timeline():
    report = make_report(ipus=2, ops=8, micro_batches=3)
    data = data_of(render(report))
    rows, strings = data["reports"][0]["timeline"]["rows"], data["strings"]
    found, ends = set(), {}
    for number, ipu in enumerate(rows["ipu"]):
        kind, task, track = (strings[rows[key][number]] for key in ("kind", "task", "track"))
        begin = ends.get((ipu, track), 0) + rows["gap"][number]
        ends[ipu, track] = begin + rows["duration"][number]
        batch = rows["micro_batch"][number]
        found.add((ipu, kind, task, batch, begin, ends[ipu, track], track))
    assert found == {(ipu, kind, task or "", batch, round(begin), round(end), track)
                     for ipu, kind, task, batch, begin, end, track in report["timeline"]["rows"]}


def test_no_name_becomes_html():
    title = "</script><b>bold</b>"
    report = make_report(title=title)
    report["ops"][0]["module"] = "</script><script>alert(1)</script>"
    page = render(report)
    assert title not in page and "alert(1)" not in page
    assert "<title>&lt;/script&gt;&lt;b&gt;bold&lt;/b&gt;</title>" in page
    [found] = reports_of(page)
    assert found["title"] == title and "alert(1)" in found["ops"][0]["module"]


def test_a_name_with_the_mark_of_a_place_stays():
    [found] = reports_of(page := render(make_report(title="{{data}}")))
    assert found["title"] == "{{data}}"
    assert "<title>{{data}}</title>" in page


def test_infinite_numbers_are_refused():
    report = make_report()
    report["ops"][0]["compute"] = float("inf")
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        render(report)
