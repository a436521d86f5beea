"""The virtual IPU system: device ids, executors that share it in one process, errors."""

import json
import os

import pytest
import torch
from torch import nn

import poptorch
from poptorch import _C
from poptorch.__main__ import main
from poptorch._device import systems
from tests.helpers import quiet_options as quiet

X = torch.ones(16)
ON_DEMAND = {"connectionType": poptorch.ConnectionType.OnDemand}


@pytest.fixture(autouse=True)
def use(monkeypatch, tmp_path):
    """Chooses a system."""
    for name in ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL", "POPTORCH_WAIT_FOR_IPU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POPTORCH_IPU_SYSTEM_DIR", str(tmp_path / "ipus"))
    monkeypatch.setenv("POPTORCH_IPU_SYSTEM", "pod4")
    return lambda name: monkeypatch.setenv("POPTORCH_IPU_SYSTEM", name)


def model(replicas=1, module=None, **settings):
    return poptorch.inferenceModel(module or nn.ReLU(),
                                   quiet(replicationFactor=replicas, **settings))


def held():
    """The ids of the devices that are held."""
    return [row.id for row in poptorch.devices() if row.holder is not None]


def test_rows():
    for name, ipus, target, hosts in _C.systems():
        system = systems.named(name)
        assert system.ipus == ipus == 1 << (ipus.bit_length() - 1) and ipus <= 64 * hosts
        assert target["version"] in (1, 2, 21) and target["source"]
        assert 300 << 20 < target["tiles"] * target["tile_bytes"] < 900 << 20
        assert 1e9 < target["clock_hz"] < 2e9
        assert target["links"] * target["link_bytes_per_second"] in (64e9, 96e9, 160e9)
    assert len({row[0] for row in _C.systems()}) == len(_C.systems())


def test_ids_are_those_of_aligned_groups():
    devices = systems.named("pod16").devices()
    assert list(devices) == list(range(31))
    assert devices[15] == range(15, 16) and devices[16] == range(2) and devices[23] == range(14, 16)
    assert devices[24] == range(4) and devices[27] == range(12, 16)
    assert devices[28] == range(8) and devices[29] == range(8, 16) and devices[30] == range(16)


@pytest.mark.parametrize("name, ipus, version", [
    ("c2", 2, 1), ("c600", 1, 21), ("pod4", 4, 2), ("pod64", 64, 2), ("bow-pod16", 16, 2)])
def test_what_the_machine_has(name, ipus, version, use):
    use(name)
    assert poptorch.ipuHardwareIsAvailable() and poptorch.ipuHardwareIsAvailable(ipus)
    assert not poptorch.ipuHardwareIsAvailable(ipus + 1)
    assert poptorch.ipuHardwareVersion() == version
    rows = poptorch.devices()
    assert [row.id for row in rows] == list(range(2 * ipus - 1))
    assert {row.version for row in rows} == {version} and rows[-1].ipus == ipus


def test_no_system(use):
    use("")
    assert poptorch.devices() == [] and not poptorch.ipuHardwareIsAvailable()
    assert repr(poptorch.devices()) == "no IPU system: set POPTORCH_IPU_SYSTEM"
    model(8)(X)


def test_unknown_system(use, capsys):
    use("pod-16")
    words = r"^\[POPTORCH_IPU_SYSTEM\] unknown IPU system 'pod-16'\. Use one of c2, .*Did you " \
            r"mean .*pod16"
    for call in (poptorch.devices, poptorch.ipuHardwareVersion, model):
        with pytest.raises(ValueError, match=words):
            call()
    assert main(["devices"]) == 1 and "unknown IPU system" in capsys.readouterr().err


def test_devices():
    first, second = model(modelName="first"), model(2, modelName="second")
    assert held() == []
    first(X), second(X)
    rows = poptorch.devices()
    assert held() == [0, 2, 3, 4, 5, 6]
    assert [row.ipus for row in rows] == [1, 1, 1, 1, 2, 2, 4]
    holder = rows[5].holder
    assert holder.pid == os.getpid() and holder.model == "second" and holder.host
    assert holder.command and rows[6].holder == rows[0].holder
    lines = repr(rows).splitlines()
    assert lines[0].split() == ["id", "IPUs", "version", "holder"]
    assert lines[1].startswith(f" 0     1        2  process {os.getpid()} on {holder.host} (model ")
    assert lines[2] == " 1     1        2  -"
    assert "<td>5</td><td>2</td><td>2</td><td>process" in rows._repr_html_()


def test_the_command(capsys, use):
    first = model()
    first(X)
    assert main(["devices"]) == 0
    assert capsys.readouterr().out == f"{poptorch.devices()}\n"
    assert main(["devices", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0] == {"id": 0, "ipus": 1, "version": 2,
                       "holder": poptorch.devices()[0].holder._asdict()}
    assert rows[1]["holder"] is None and len(rows) == 7
    use("")
    assert main(["devices"]) == 0 and "no IPU system" in capsys.readouterr().out
    assert main(["devices", "--json"]) == 0 and json.loads(capsys.readouterr().out) == []


def test_the_option_chooses_the_system(use):
    use("")
    chosen = model(4, system="pod4")
    chosen(X)
    with pytest.raises(poptorch.Error, match=r"^\[device\] each device with 1 IPU of the system "
                                             r"pod4, which inference needs, is held\. Call detach"):
        model(system="pod4")(X)
    model(8)(X)
    use("c2")  # the option is stronger
    with pytest.raises(poptorch.Error, match=r"\(8\)\. Maximum of the system pod4 is 4"):
        model(8, system="pod4")(X)


def test_the_ipu_model_instead_of_the_system(monkeypatch):
    model(8, useIpuModel=True)(X)
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    model(8)(X)
    assert poptorch.ipuHardwareIsAvailable() and held() == []


@pytest.mark.parametrize("settings", [{}, ON_DEMAND,
                                      {"connectionType": poptorch.ConnectionType.Never}])
def test_too_many_ipus(settings):
    refused = model(8, **settings)
    with pytest.raises(poptorch.Error, match=r"^\[system\] Too many IPUs requested \(8\)\. Maximum "
                                             r"of the system pod4 is 4\. Use fewer replicas"):
        refused.compile(X)
    assert not refused.isCompiled() and not refused.isAttachedToDevice() and held() == []


def test_one_process_has_at_most_64(use):
    use("pod128")
    with pytest.raises(poptorch.Error, match=r"Too many IPUs requested \(128\)\. Maximum for one "):
        model(128)(torch.ones(128))


def test_the_number_is_rounded_up():
    three = model(3, autoRoundNumIPUs=True)
    three(torch.ones(3))
    assert held() == list(range(7))
    with pytest.raises(poptorch.Error, match=r"requested \(8\)\. Maximum of the system pod4 is 4"):
        model(5, autoRoundNumIPUs=True)(torch.ones(5))


def test_ids():
    pair = model(2, useIpuId=5)
    pair(X)
    assert held() == [2, 3, 5, 6]
    pair.destroy()
    with pytest.raises(poptorch.Error, match=r"^\[useIpuId\] device 4 of the system pod4 has 2 "
                       r"IPUs, and inference needs 1\. Leave useIpuId out, or use a device with 1 "
                       r"IPUs: 0-3\."):
        model(useIpuId=4)(X)
    with pytest.raises(poptorch.Error, match=r"has 1 IPUs, and inference needs 4\. .*4 IPUs: 6\."):
        model(4, useIpuId=0)(X)
    with pytest.raises(poptorch.Error, match=r"^\[useIpuId\] device 7 does not exist: the system "
                                             r"pod4 has the devices 0 to 6\. "):
        model(useIpuId=7)
    assert held() == []


@pytest.mark.parametrize("settings", [{}, ON_DEMAND], ids=["Always", "OnDemand"])
@pytest.mark.parametrize("end", ["detachFromDevice", "destroy"])
@pytest.mark.parametrize("number", [6, None])
def test_executors_take_turns(settings, end, number):
    ids = {} if number is None else {"useIpuId": number}
    first, second = (model(4, modelName=name, **ids, **settings) for name in ("first", "second"))
    first(X)
    where = r"\[device\] each device with 4 IPUs" if number is None else r"\[useIpuId\] device 6"
    words = rf"^{where} of the system pod4, which second needs, is held\. .*\n  IPUs 0-3: " \
            rf"process {os.getpid()} on .* \(model first, since"
    with pytest.raises(poptorch.Error, match=words):
        second(X)
    assert not second.isAttachedToDevice() and not second.isCompiled()
    getattr(first, end)()
    assert held() == []
    assert torch.equal(second(X), X)
    second.detachFromDevice()
    assert torch.equal(first(X), X) and first.isAttachedToDevice()


def test_always_takes_a_device_before_most_of_the_compilation(monkeypatch):
    class Seen(nn.Module):
        def forward(self, x):
            seen.append(1)
            return x

    holder, seen, steps = model(4), [], []
    holder(X)
    monkeypatch.setattr("poptorch._reports.progress.StepProgress.__call__",
                        lambda _, step: steps.append(step))
    for settings, captured, last in [({"useIpuId": 0}, 0, None), ({}, 1, "place"),
                                     (ON_DEMAND, 1, "assemble")]:
        seen.clear(), steps.clear()
        with pytest.raises(poptorch.Error, match=" is held"):
            model(module=Seen(), **settings).compile(X)
        assert len(seen) == captured and (steps or [None])[-1] == last


def test_an_executor_that_failed_or_is_gone_holds_nothing():
    class Wrong(nn.Module):
        def forward(self, x):
            return x / x.missing

    with pytest.raises(AttributeError):
        model(module=Wrong(), useIpuId=0)(X)
    assert held() == []
    gone = model(4)
    gone(X)
    del gone
    assert held() == []
    gone = model(4)
    gone(X)
    gone.itself = gone  # only the collector of cycles finds it
    del gone
    model(4)(X)


class Grows(nn.Module):
    """Runs on as many IPUs as its attribute says."""

    ipus = 1

    def forward(self, x):
        for ipu in range(self.ipus):
            with poptorch.Block(ipu_id=ipu):
                x = x + 1
        return x


def test_programs_of_one_executor_with_different_numbers_of_ipus():
    net = Grows()
    grows = model(module=net, deviceIterations=4)
    assert torch.equal(grows(X), X + 1) and held() == [0, 4, 6]
    net.ipus = 2
    assert torch.equal(grows(X), X + 2) and held() == [0, 1, 4, 6]
    other = model(2)
    other(X)
    net.ipus = 4
    with pytest.raises(poptorch.Error, match=r"IPUs 2-3: process"):
        grows(X)
    other.destroy()
    assert torch.equal(grows(X), X + 4) and held() == list(range(7))
    net.ipus = 1
    assert torch.equal(grows(X), X + 1) and held() == [0, 4, 6]
    other(X)
    net.ipus = 4
    with pytest.raises(poptorch.Error, match=r"IPUs 2-3: process"):
        grows(X)
    net.ipus = 1
    assert torch.equal(grows(X), X + 1) and grows.isAttachedToDevice()


def test_a_file_for_ipus_of_another_version(use, tmp_path):
    path = str(tmp_path / "net.poptorch")
    model(useOfflineIpuTarget=1).compileAndExport(path, X)
    words = r"compiled for IPUs of version 1 \(useOfflineIpuTarget\), and those of the system " \
            r"pod4 have version 2\. "
    for load in (poptorch.load, lambda path: model().loadExecutable(path)):
        with pytest.raises(poptorch.Error, match=words):
            load(path)
    use("c2")
    loaded = poptorch.load(path)
    assert torch.equal(loaded(X), X) and held() == [0, 2]
    use("")
    assert torch.equal(poptorch.load(path)(X), X)


def test_an_offline_target_needs_no_device():
    holder = model(4)
    holder(X)
    model(8, useOfflineIpuTarget=2).compile(X)


def test_a_folder_that_cannot_be_used(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POPTORCH_IPU_SYSTEM_DIR", str(tmp_path / "file"))
    with pytest.raises(poptorch.Error, match=r"^\[POPTORCH_IPU_SYSTEM_DIR\] cannot use the folder "
                       r".*file, which holds the files of the IPU system pod4: File exists\. Set"):
        model()(X)
    (tmp_path / "folder" / "ipu0.lock").mkdir(parents=True)
    monkeypatch.setenv("POPTORCH_IPU_SYSTEM_DIR", str(tmp_path / "folder"))
    with pytest.raises(poptorch.Error, match=r"cannot open .*ipu0.lock, the file of an IPU: "):
        model()(X)


def test_the_folder_of_another_user(monkeypatch, tmp_path):
    monkeypatch.delenv("POPTORCH_IPU_SYSTEM_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = model()
    first(X)
    assert held() == [0, 4, 6] and (tmp_path / f"poptorch-{os.getuid()}-pod4").is_dir()
    uid = os.getuid()
    (tmp_path / f"poptorch-{uid + 1}-pod4").mkdir()
    monkeypatch.setattr("os.getuid", lambda: uid + 1)
    with pytest.raises(poptorch.Error, match=rf"belongs to user {uid}, and this process to user "
                                             rf"{uid + 1}\. Set POPTORCH_IPU_SYSTEM_DIR"):
        model()(X)
