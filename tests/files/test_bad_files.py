"""Files that are not as they were written, or not for the wrapper: refused, with a reason."""

import hashlib
import io
import json
import os
import random
import re
import zipfile
from pathlib import Path

import pytest
import torch

import poptorch
from tests.fuzz.files import file_models
from tests.helpers import quiet_options as options


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    net = torch.nn.Sequential(torch.nn.Linear(4, 30), torch.nn.ReLU(), torch.nn.Linear(30, 2))
    model = poptorch.inferenceModel(net, options())
    return model.compileAndExport(tmp_path_factory.mktemp("saved") / "net.poptorch",
                                  torch.randn(3, 4))


def rewritten(path, target, change, *, rehash=True):
    """A copy in which `change(members)` was done; with hashes that fit again, if asked."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    change(members, manifest)
    if rehash:
        manifest["members"] = {name: hashlib.sha256(data).hexdigest()
                               for name, data in members.items()}
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in {"manifest.json": json.dumps(manifest), **members}.items():
            archive.writestr(name, data)
    return target


def changed_member(name, old, new):
    def change(members, _):
        assert old in members[name]
        members[name] = members[name].replace(old, new)
    return change


def renamed_version(_, manifest):
    manifest["poptorch_version"] = "0.0.1"


def other_build_of_torch(_, manifest):
    manifest["torch_version"] = torch.__version__.partition("+")[0] + "+xyz"


def newer_format(_, manifest):
    manifest["format_version"] = 99


def lost_member(members, _):
    del members["plan.ir"]


CHANGES = {
    "version": (renamed_version, False, "has poptorch_version '0.0.1', this is"),
    "format": (newer_format, False, "has format_version 99, this is 16"),
    "hash": (changed_member("plan.ir", b"relu", b"silu"), False, "plan.ir was changed"),
    "lost": (lost_member, False, "differ in plan.ir"),
    "no plan": (lost_member, True, "damaged: it has no plan.ir"),
    "an op": (changed_member("plan.ir", b"relu", b"rule"), True, "plan.ir is not what.*no such op"),
    "a size": (changed_member("plan.ir", b"f32[3,4]", b"f32[9,4]"), True, "plan.ir is not"),
    "too large": (changed_member("plan.ir", b"f32[30]", b"f32[4611686018427387904]"), True,
                  r"less than 2\^47 bytes"),
    "an address": (changed_member("plan.ir", b"addr=640,", b"addr=4611686018427387904,"), True,
                   "plan.ir is not.*outside the arena"),
    "json": (changed_member("interface.json", b"{", b"["), True,
             "interface.json is not what poptorch writes .JSONDecodeError"),
    "class": (changed_member("model.json", b"torch.nn.modules.linear:Linear", b"os:_Environ"),
              True, "not a class for data"),
    "not imported": (changed_member("model.json", b"torch.nn.modules.linear:Linear",
                                    b"no_such_module:Linear"), True, "import no_such_module"),
    "of a script": (changed_member("model.json", b"torch.nn.modules.linear:Linear",
                                   b"__main__:NoSuchNet"), True,
                    r"the file needs NoSuchNet, which the script that wrote it defined .* Define "
                    r"it here, or move it to a module that both import\."),
    "weights": (changed_member("weights.safetensors", b'"F32"', b'"F33"'), True,
                "its weights.safetensors is not"),
    "a weight of another shape": (changed_member("weights.safetensors", b"[30,4]", b"[4,30]"), True,
                                  "bad.poptorch: 0.weight is .4, 30. in the module"),
    "overlap": (changed_member("plan.ir", b"addr=640,", b"addr=0,"), True, "plan.ir is not.*share"),
    "an entry is gone": (changed_member("interface.json", b'"called"', b'"alled"'), True,
                         "arguments is .*expected the entries structure, called"),
    "a number is a bool": (changed_member("interface.json", b'["inputs",{"dict":[[0,',
                                          b'["inputs",{"dict":[[false,'), True,
                           r"a key of interface.inputs is False, expected int"),
    "a path is a number": (changed_member("interface.json", b'"input"', b"3"), True,
                           r"arguments\[0\] is 3, expected str"),
    "an option's value": (changed_member("options.json", b'"device_iterations",1',
                                         b'"device_iterations",-1'), True,
                          "options.json is not.*deviceIterations"),
    "an option is gone": (changed_member("options.json", b'["model_name","inference"]',
                                         b'["model","inference"]'), True, "no entry 'model_name'"),
    "partition": (changed_member("partition.json", b'"stage":', b'"stag":'), True,
                  "partition.json is not.*expected the entries"),
    "generator": (changed_member("rng.json", b"[", b'["x",'), True, "rng.json is not.*rng_state"),
    "module": (changed_member("model.json", b'"user_model"', b'"user"'), True,
               "model.json is not.*no entry 'user_model'"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_files_are_refused(name, saved, tmp_path):
    change, rehash, words = CHANGES[name]
    path = rewritten(saved, tmp_path / "bad.poptorch", change, rehash=rehash)
    with pytest.raises(poptorch.Error, match=words) as caught:
        poptorch.load(path)
    message = caught.value.message
    assert message.startswith("[load") and str(path) in message and "internal" not in message


@pytest.mark.parametrize("content, words", [
    (b"", "not a file of poptorch"), (b"PK", "not a file of poptorch"),
    (b"hello, this is text" * 99, "it is not a zip archive: it begins with b'hell'"),
])
def test_foreign_files(content, words, tmp_path):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(poptorch.Error, match=words):
        poptorch.load(path)


def test_other_foreign_files(tmp_path):
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "torch.pt")
    with pytest.raises(poptorch.Error, match="a zip without manifest.json"):
        poptorch.load(tmp_path / "torch.pt")
    words = r"cannot read [^'\[]*: No such file or directory\. Pass"
    with pytest.raises(poptorch.Error, match=words):
        poptorch.load(tmp_path / "absent")


def test_truncated_and_flipped_files(saved, tmp_path):
    data = Path(saved).read_bytes()
    rng = random.Random(int(torch.initial_seed()))
    for _ in range(60):
        bad = bytearray(data)
        if rng.random() < 0.5:
            bad = bad[:rng.randrange(len(bad))]
        else:
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path = tmp_path / "bad.poptorch"
        path.write_bytes(bad)
        try:
            poptorch.load(path)  # a bit that is not read (a time, say) does no harm
        except poptorch.Error as error:
            assert str(path) in error.message


def test_a_file_without_its_middle(saved, tmp_path):
    path = tmp_path / "bad.poptorch"  # the end of the zip points before the begin of the file
    path.write_bytes(Path(saved).read_bytes()[-1000:])
    with pytest.raises(poptorch.Error, match=r"bad.poptorch is (damaged|not a file of poptorch)"):
        poptorch.load(path)
    with pytest.raises(poptorch.Error, match="cannot read"):
        poptorch.load("null\0byte")


def test_one_stream_for_two_tensors(tmp_path):
    class Both(torch.nn.Module):
        def forward(self, x, y):
            return x + y

    inference = poptorch.inferenceModel(Both(), options())
    path = inference.compileAndExport(tmp_path / "both", torch.ones(2), torch.ones(2),
                                      export_model=False)
    change = changed_member("interface.json", b"input.y", b"input.x")
    bad = rewritten(path, tmp_path / "bad", change)
    inference.destroy()
    with pytest.raises(poptorch.Error, match="interface.json is not.*stream is used twice"):
        inference.loadExecutable(bad)
    inference.loadExecutable(path)
    assert torch.equal(inference(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))


def test_an_optimizer_without_its_numbers(tmp_path):
    net = file_models.Learner()
    trained = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.5))
    path = trained.compileAndExport(tmp_path / "net", torch.ones(2, 2, 6, 6),
                                    torch.zeros(2, dtype=torch.int64))
    for old, new, words in ((b'["lr",0.5]', b'["lr",{"dict":[]}]',
                             "model.json is not.*lr of a parameter group is {}"),
                            (b'["lr",', b'["rate",', "model.json is not.*no entry 'lr'")):
        change = changed_member("model.json", old, new)
        with pytest.raises(poptorch.Error, match=words):
            poptorch.load(rewritten(path, tmp_path / "bad", change))
    change = changed_member("interface.json", b'["class","SGD"]', b'["class","SDG"]')
    with pytest.raises(poptorch.Error, match="optimizer.class is 'SDG', expected one of A"):
        poptorch.load(rewritten(path, tmp_path / "bad", change))


def test_errors_of_the_users_function_stay_as_they_are(saved):
    with pytest.raises(ZeroDivisionError):
        poptorch.load(saved, lambda _: 1 // 0)


def test_programs_do_not_read_files(saved, tmp_path):
    (tmp_path / "secret").write_bytes(bytes(1000))
    attrs = (f'addr=0, args=["{tmp_path}/secret", false, 2], ipu=0, order=0, '
             f'overload="aten::from_file", stage=0')
    text = f"graph main {{\n  %0 = aten {{{attrs}}} : f32[2]\n  output\n}}\n"

    def change(members, _):
        members["plan.ir"] = text.encode()

    bad = rewritten(saved, tmp_path / "bad", change)
    with pytest.raises(poptorch.Error, match="aten::from_file.*reads and writes files"):
        poptorch.load(bad)


def test_a_crash_leaves_the_old_file(saved, tmp_path, monkeypatch):
    path = tmp_path / "net.poptorch"
    path.write_bytes(Path(saved).read_bytes())
    model = poptorch.load(path)

    def crash(*_):
        raise KeyboardInterrupt

    for name in ("fsync", "replace", "fchmod"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, crash)
            with pytest.raises(KeyboardInterrupt):
                model.save(path)
        assert os.listdir(tmp_path) == ["net.poptorch"]
        assert path.read_bytes() == Path(saved).read_bytes()
    with pytest.raises(poptorch.Error, match=r"\[save\] cannot write"):
        model.save(tmp_path / "no" / "folder")


def test_wrong_wrappers_for_a_file(saved, tmp_path):
    def refused(words, wrapper):
        with pytest.raises(poptorch.Error, match=words):
            wrapper.loadExecutable(saved)
        assert not wrapper.isCompiled()

    linear = torch.nn.Linear
    net = torch.nn.Sequential(linear(4, 30), torch.nn.ReLU(), linear(30, 2))
    refused("device_iterations=1, this wrapper specifies device_iterations=2",
            poptorch.inferenceModel(net, options(deviceIterations=2)))
    refused("saved from inferenceModel, this is trainingModel",
            poptorch.trainingModel(net, options()))
    refused("1 is a layer of the file's module alone",
            poptorch.inferenceModel(torch.nn.Sequential(linear(4, 30)), options()))
    other = torch.nn.Sequential(linear(4, 31), torch.nn.ReLU(), linear(31, 2))
    refused(r"0.bias|0.weight", poptorch.inferenceModel(other, options()))


class Airy(torch.nn.Module):
    """An operator that is left to torch."""

    def forward(self, x):
        return torch.special.airy_ai(x)


def of_torch(version, *names):
    """A change: written by another torch, with the second name of an operator for the first."""
    def change(members, manifest):
        manifest["torch_version"] = version
        if names:
            assert names[0] in members["plan.ir"]
            members["plan.ir"] = members["plan.ir"].replace(*names)
    return change


def test_other_versions_of_torch(saved, tmp_path):
    again = rewritten(saved, tmp_path / "net", of_torch("2.99.1"))
    x = torch.randn(3, 4)
    assert torch.equal(poptorch.load(again)(x), poptorch.load(saved)(x))


@pytest.mark.parametrize("name, words", [
    (b"aten::special_airy_bi", "calls aten::special_airy_bi, an operator that torch {own} does not "
                               "have. Import the library that registers it, or export"),
    (b"aten::add.Tensor", "calls aten::add.Tensor, which torch {own} refuses: .*argument.*Load it "
                          "with that version, or export"),
])
def test_operators_that_this_torch_does_not_have(name, words, tmp_path):
    model = poptorch.inferenceModel(Airy(), options())
    path = model.compileAndExport(tmp_path / "net", torch.ones(3))
    path = rewritten(path, tmp_path / "old", of_torch("2.13.9", b"aten::special_airy_ai", name))
    with pytest.raises(poptorch.Error, match=rf"^\[load\] {path} was written with torch 2.13.9 and "
                                             + words.format(own=re.escape(torch.__version__))):
        poptorch.load(path)
    again = poptorch.inferenceModel(Airy(), options())
    with pytest.raises(poptorch.Error, match=words.format(own=re.escape(torch.__version__))):
        again.loadExecutable(path)


def test_the_build_of_torch_is_no_other_torch(saved, tmp_path):
    again = rewritten(saved, tmp_path / "net", other_build_of_torch)
    ours, theirs = (poptorch.load(path)(torch.ones(3, 4)) for path in (again, saved))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", [None, 3, "", [], b"", True, io.BytesIO()])
def test_what_is_no_name(name, saved):
    model = poptorch.load(saved)
    with pytest.raises(poptorch.Error, match=r"\[load\] the file's name is .*expected a path"):
        poptorch.load(name)
    with pytest.raises(poptorch.Error, match=r"\[save\] the file's name is .*expected a path"):
        model.save(name)
    model.destroy()
    with pytest.raises(poptorch.Error, match=r"\[load\] the file's name is .*expected a path"):
        model.loadExecutable(name)


def test_save_needs_a_compiled_model(tmp_path):
    with pytest.raises(poptorch.Error, match="Model has not been compiled"):
        poptorch.inferenceModel(torch.nn.Linear(4, 2), options()).save(tmp_path / "a")
