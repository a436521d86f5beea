"""poptorch.profiling: channels, recordings, the executor's steps and runs."""

import json
import multiprocessing

import pytest
import torch

import poptorch
from poptorch import profiling
from tests.api.options.effects import Scale
from tests.helpers import quiet_options as quiet
from tests.helpers import run_python


def events(path):
    return json.loads(path.read_text())["traceEvents"]


def test_tracepoints_nest(tmp_path):
    channel = profiling.Channel("MyApp")
    path = tmp_path / "new" / "trace.json"
    with profiling.record(path):
        with channel.tracepoint("outer"), channel.tracepoint("inner"):
            pass
        with pytest.raises(KeyError), channel.tracepoint("raises"):
            raise KeyError
    inner, outer, raises = events(path)
    assert [e["name"] for e in (inner, outer, raises)] == ["inner", "outer", "raises"]
    assert all(e["cat"] == "MyApp" and e["ph"] == "X" for e in (inner, outer, raises))
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1e-3
    with channel.tracepoint("after"):
        assert not profiling.is_recording()
    assert len(events(path)) == 3


def test_instrument(tmp_path):
    class Reader:
        def read(self, n, *, twice=False):
            """Reads."""
            return n * (1 + twice)

    reader, other = Reader(), Reader()
    profiling.Channel("MyApp").instrument(reader, "read")
    path = tmp_path / "trace.json"
    with profiling.record(path):
        assert reader.read(3, twice=True) == 6 and other.read(1) == 1
    assert [e["name"] for e in events(path)] == ["Reader.read"]
    assert reader.read.__doc__ == "Reads."
    with pytest.raises(AttributeError, match="Reader has no method 'reed'"):
        profiling.Channel("MyApp").instrument(reader, "read", "reed")


def test_methods_of_a_class(tmp_path):
    class Reader:
        @staticmethod
        def read(n):
            return n + 1

        @classmethod
        def kind(cls, n):
            return cls, n

        def own(self, n):
            return self, n

    class Other(Reader):
        pass

    profiling.Channel("MyApp").instrument(Reader, "read", "kind", "own")
    reader, path = Reader(), tmp_path / "trace.json"
    with profiling.record(path):
        assert Reader.read(1) == reader.read(1) == 2
        assert Reader.kind(1) == reader.kind(1) == (Reader, 1) and Other.kind(1) == (Other, 1)
        assert reader.own(3) == (reader, 3)
    assert [e["name"] for e in events(path)] == [
        *["Reader.read"] * 2, *["Reader.kind"] * 3, "Reader.own"]


@pytest.mark.parametrize("make", [lambda: profiling.Channel(3),
                                  lambda: profiling.Channel("a").tracepoint(None)])
def test_names_are_texts(make):
    with pytest.raises(TypeError, match="name must be a str"):
        make()


def test_steps_and_runs(tmp_path):
    path = tmp_path / "trace.json"
    with profiling.record(path):
        model = poptorch.trainingModel(Scale(), quiet(deviceIterations=2, modelName="net"))
        for _ in range(2):
            model(torch.ones(2, 2))
    found = events(path)
    steps = ["capture", "translate", "rewrite", "place", "lower", "schedule", "plan", "assemble"]
    assert [e["name"] for e in found] == [*steps, *["run", "iteration 0", "iteration 1"] * 2]
    assert {e["cat"] for e in found} == {"compile net", "run net"}
    run, first, second = found[len(steps):len(steps) + 3]
    assert run["ts"] <= first["ts"] <= second["ts"] <= run["ts"] + run["dur"] + 1e-3
    assert all(e["dur"] >= 0 for e in found)


def _work(channel):
    with channel.tracepoint("in a child"):
        pass


@pytest.mark.parametrize("method", ["fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", ["trace.json", "new/trace.json", "run[1].json", "a*b?.json"])
def test_children_add_their_events(tmp_path, method, name):
    path = tmp_path / name
    with profiling.record(path):
        child = multiprocessing.get_context(method).Process(
            target=_work, args=(profiling.Channel("worker"),))
        child.start()
        child.join(60)
        assert child.exitcode == 0
    [event] = events(path)
    assert event["name"] == "in a child" and event["pid"] == child.pid
    assert list(path.parent.iterdir()) == [path]


def test_a_process_that_goes_to_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with profiling.record("trace.json"):
        with profiling.Channel("c").tracepoint("done"):
            pass
        monkeypatch.chdir("other")
    assert [e["name"] for e in events(tmp_path / "trace.json")] == ["done"]
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.sampled
def test_the_environment_records_the_process(tmp_path):
    code = "import poptorch\nwith poptorch.profiling.Channel('c').tracepoint('done'): pass"
    settings = json.dumps({"enable": "true", "directory": str(tmp_path)})
    run_python(code, PVTI_OPTIONS=settings)
    [path] = tmp_path.glob("poptorch_*.json")
    assert [e["name"] for e in events(path)] == ["done"]
    code = ("import multiprocessing as m, poptorch\n"
            "def work():\n    with poptorch.profiling.Channel('c').tracepoint('child'): pass\n"
            "child = m.get_context('fork').Process(target=work)\nchild.start()\nchild.join()")
    path.unlink()
    run_python(code, PVTI_OPTIONS=settings)
    [path] = tmp_path.glob("*")
    assert [e["name"] for e in events(path)] == ["child"]
    with pytest.raises(AssertionError, match="PVTI_OPTIONS. is no JSON"):
        run_python("import poptorch", PVTI_OPTIONS="{")
    with pytest.raises(AssertionError, match="PVTI_OPTIONS. must be a JSON object, got .1"):
        run_python("import poptorch", PVTI_OPTIONS="[1]")
