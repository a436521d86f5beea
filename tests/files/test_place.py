"""What stands at the place of a file: links, devices, permissions, names, unfinished files."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import poptorch
from poptorch._files import place
from tests.helpers import ROOT, quiet_options


@pytest.fixture(scope="module")
def model():
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), quiet_options())
    model(torch.ones(3, 4))
    return model


def loads(path):
    """Whether a whole file is there."""
    again = poptorch.load(path)
    return torch.allclose(again(torch.ones(3, 4)), again.model(torch.ones(3, 4)))


def test_links_stay_links(model, tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "net.poptorch", tmp_path / "link"
    second = tmp_path / "second"
    link.symlink_to(target)  # of a file that does not exist
    second.symlink_to("link")
    for name in (link, second, link):
        assert model.save(name) == str(name)
        assert link.is_symlink() and second.is_symlink() and not target.is_symlink()
        assert target.is_file() and loads(target) and loads(name)
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "second"]
    assert os.listdir(tmp_path / "folder") == ["net.poptorch"]
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(poptorch.Error, match=r"\[save\] cannot write .*loop"):
        model.save(loop)
    assert loop.is_symlink()


def test_a_link_to_a_folder_is_a_folder(model, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    path = Path(model.save(tmp_path / "link"))
    assert path.parent == tmp_path / "link" and loads(path)


@pytest.fixture(params=["pipe", "socket", "device", "link to a device"])
def no_file(request, tmp_path):
    path = tmp_path / "there"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(str(path))
    elif request.param == "link to a device":
        path.symlink_to("/dev/null")
    else:
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    return path


def test_only_files_are_replaced(model, no_file):
    before = os.lstat(no_file), os.stat("/dev/null").st_mode
    with pytest.raises(poptorch.Error, match=r"\[save\] cannot write .*only files are replaced"):
        model.save(no_file)
    after = os.lstat(no_file), os.stat("/dev/null").st_mode
    assert (after[0].st_ino, after[0].st_mode, after[1]) == (
        before[0].st_ino, before[0].st_mode, before[1])
    assert os.listdir(no_file.parent) == ["there"]


def test_only_files_are_read(no_file):
    """To open a pipe would wait for a writer."""
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), quiet_options())
    for read in (poptorch.load, model.loadExecutable):
        with pytest.raises(poptorch.Error, match=r"\[load\] cannot read .*only files are read"):
            read(no_file)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0o027])
def test_permissions_are_those_of_open(model, tmp_path, umask):
    before = os.umask(umask)
    try:
        open(tmp_path / "plain", "wb").close()
        model.save(tmp_path / "net")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert (tmp_path / "net").stat().st_mode == (tmp_path / "plain").stat().st_mode
    for mode in (0o600, 0o664, 0o640, 0o755):
        os.chmod(tmp_path / "net", mode)
        model.save(tmp_path / "net")
        assert stat.S_IMODE((tmp_path / "net").stat().st_mode) == mode


def test_the_mask_of_other_threads_is_not_touched(model, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the mask is the process's"))
    assert loads(model.save(tmp_path / "net"))


def test_extended_attributes_stay(model, tmp_path):
    path = tmp_path / "net"
    model.save(path)
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("no extended attributes here")
    model.save(path)
    assert os.getxattr(path, "user.note") == b"mine"


def test_a_file_that_may_not_be_written_stays(model, tmp_path, monkeypatch):
    path = tmp_path / "net"
    path.write_bytes(b"old")
    path.chmod(0o444)
    # Root may write to anything.
    monkeypatch.setattr(os, "access", lambda file, _: bool(os.stat(file).st_mode & 0o200))
    with pytest.raises(poptorch.Error, match="cannot write .*may not be written to"):
        model.save(path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["net"]


@pytest.mark.parametrize("length", [200, 240, 255])
def test_long_names(model, tmp_path, length):
    path = tmp_path / ("n" * length)
    assert model.save(path) == str(path) and loads(path)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("name", ["n" * 256, "n" * 300, "\u00e9" * 200, "a\0b", "no/folder/net",
                                  "file/net"])
def test_names_that_cannot_be(model, tmp_path, name):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(poptorch.Error, match=r"\[save\] cannot write"):
        model.save(f"{tmp_path}/{name}")
    with pytest.raises(poptorch.Error, match=r"\[load\] cannot read"):
        poptorch.load(f"{tmp_path}/{name}")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["N" * 300, "\u7db2" * 120, "a/b", ".."])
def test_names_of_classes(tmp_path, name):
    net = type(name, (torch.nn.Linear,), {})(4, 2)
    made = poptorch.inferenceModel(net, quiet_options())
    path = Path(made.compileAndExport(tmp_path, torch.ones(3, 4), export_model=False))
    assert path.parent == tmp_path and os.listdir(tmp_path) == [path.name]
    made.destroy()
    made.loadExecutable(path)


def test_bytes_are_a_path(model, tmp_path):
    path = os.fsencode(tmp_path / "net")
    assert loads(model.save(path)) and loads(path)


_KILLED = """
import os, signal, sys, torch, poptorch
options = poptorch.Options().showCompilationProgressBar(False)
model = poptorch.inferenceModel(torch.nn.Linear(4, 2), options)
model(torch.ones(3, 4))
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
model.save(sys.argv[1])
"""


@pytest.mark.sampled
def test_what_a_killed_save_left_is_removed(model, tmp_path):
    path = tmp_path / "net"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", _KILLED, str(path)], cwd=ROOT, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old" and len(os.listdir(tmp_path)) == 2
    model.save(tmp_path / "another")  # this is not its place
    assert len(os.listdir(tmp_path)) == 3
    model.save(path)
    assert sorted(os.listdir(tmp_path)) == ["another", "net"] and loads(path)


def test_writers_at_one_place(tmp_path):
    """Many at the same time: each writes a whole file, and none takes another's away."""
    path, errors = tmp_path / "file", []

    def write(number):
        try:
            for _ in range(30):
                place.replace(path, lambda file: file.write(bytes([number]) * 5000))
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            data = path.read_bytes()
            assert len(data) == 5000 and len(set(data)) == 1
    assert not errors and os.listdir(tmp_path) == ["file"]
