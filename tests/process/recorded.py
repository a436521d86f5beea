"""What a process has that others may rely on: recorded in it before and after, and compared.

``python -m tests.process.recorded`` prints what differs after importing poptorch, and after a model
was compiled, run, saved, loaded and destroyed.
"""

import ctypes
import faulthandler
import gc
import importlib
import json
import locale
import logging
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import warnings

import torch


def _torch_settings() -> dict:
    """Every setting of torch that a function without arguments tells."""
    found = {}
    for space in (torch, torch.backends.mkldnn, torch.backends.cpu, torch.autograd, torch.nn,
                  torch.overrides, torch.random, torch.utils.deterministic,
                  torch._C):
        for name in dir(space):
            if name == "_get_sequence_nr":  # how many operations were recorded, eager ones, too
                continue
            if name.startswith(("get_", "is_", "are_", "_get_", "_is_", "initial_seed")) or \
                    name.endswith("_enabled"):
                try:
                    value = getattr(space, name)()
                except Exception:  # it takes arguments, or asks for something that is not there
                    continue
                if isinstance(value, (bool, int, float, str, type(None), torch.dtype)):
                    found[f"{space.__name__}.{name}"] = str(value)
    found["small numbers"] = (torch.tensor([1e-39]) / 2).item()  # 0 where they are flushed
    found["random state"] = hash(bytes(torch.get_rng_state().tolist()))
    found["default device"] = str(torch.get_default_device())
    return found


def _tqdm() -> dict:
    if "tqdm" not in sys.modules:
        return {}
    from tqdm import tqdm  # only once it is imported elsewhere
    return {"lock of tqdm": repr(vars(tqdm).get("_lock")), "monitor of tqdm": repr(tqdm.monitor),
            "bars": len(getattr(tqdm, "_instances", ()))}


def record() -> dict[str, object]:
    """The state of this process, by kind."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        **_torch_settings(), **_tqdm(),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "sharing strategy": torch.multiprocessing.get_sharing_strategy(),
        "environment": dict(os.environ), "environment of C": _environment_of_c(),
        "umask": umask, "folder": os.getcwd(), "sys.path": list(sys.path),
        "handlers of signals": {str(s): repr(signal.getsignal(s)) for s in signal.valid_signals()},
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "warnings filters": [repr(f) for f in warnings.filters],
        "showwarning": repr(warnings.showwarning), "hooks": [
            repr(getattr(sys, name)) for name in ("excepthook", "displayhook", "unraisablehook",
                                                  "stdout", "stderr", "stdin")],
        "meta_path": [repr(f) for f in sys.meta_path], "path_hooks": len(sys.path_hooks),
        "root logger": (repr(logging.root), [repr(h) for h in logging.root.handlers],
                        [repr(f) for f in logging.root.filters], logging.root.manager.disable),
        "other loggers": {name: (x.level, len(x.handlers), len(x.filters), x.propagate)
                          for name, x in logging.root.manager.loggerDict.items()
                          if isinstance(x, logging.Logger) and name.startswith("torch.")
                          and (x.handlers or x.filters)},
        "recursion limit": sys.getrecursionlimit(), "switch interval": sys.getswitchinterval(),
        "trace": repr(sys.gettrace()), "profile": repr(sys.getprofile()),
        "faulthandler": faulthandler.is_enabled(), "gc": (gc.isenabled(), gc.get_threshold()),
        "locale": locale.setlocale(locale.LC_ALL), "priority": os.nice(0),
        "limits": {name: resource.getrlimit(getattr(resource, name))
                   for name in dir(resource) if name.startswith("RLIMIT_")},
        "affinity": sorted(os.sched_getaffinity(0)), "temporary folder": tempfile.gettempdir(),
        "threads of Python": threading.active_count(), "children": _children(),
        "classes of torch": {name: _members(getattr(torch, name)) for name in ("Tensor", "Size")},
        "torch.nn.Module": _members(torch.nn.Module), "Parameter": _members(torch.nn.Parameter),
    }


def _members(cls) -> dict[str, str]:
    return {name: f"{type(value).__name__} {id(value)}" for name, value in vars(cls).items()}


def _environment_of_c() -> list[str]:
    # os.environ is a copy of the first moment: a library may have set something since.
    code = ctypes.CDLL(None)
    array = ctypes.POINTER(ctypes.c_char_p).in_dll(code, "environ")
    found = []
    while array[len(found)] is not None:
        found.append(array[len(found)].decode(errors="replace"))
    return sorted(found)


def _children() -> list[str]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()


def differences(before: dict, after: dict) -> dict[str, list]:
    """What differs, by its name."""
    found = {}
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found |= {f"{name}: {key}": value for key, value in differences(old, new).items()}
        elif isinstance(old, list) and isinstance(new, list) and old != new:
            found[name] = [[x for x in old if x not in new], [x for x in new if x not in old]]
        elif old != new:
            found[name] = [str(old), str(new)]
    return found


def use_everything() -> None:
    """A program that trains, infers, saves, loads and destroys."""
    import poptorch  # what importing changes is the point

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8),
                                              torch.nn.Dropout(0.5), torch.nn.Flatten(),
                                              torch.nn.LazyLinear(4))

        def forward(self, x):
            y = self.layers(x)
            return y, poptorch.identity_loss(y, "mean")

    net, x = Net(), torch.ones(4, 3, 6, 6)
    net(x)
    # First, as torch's optimizers import what a first compilation imports.
    poptorch.inferenceModel(net.layers)(x)
    options = poptorch.Options().deviceIterations(2)
    trained = poptorch.trainingModel(net, options, torch.optim.Adam(net.parameters()))
    for _ in range(2):
        trained(torch.cat([x, x]))
    inferred = poptorch.inferenceModel(net.layers)
    loader = poptorch.DataLoader(poptorch.Options(), torch.utils.data.TensorDataset(x), 2)
    for part, in loader:
        inferred(part)
    with tempfile.TemporaryDirectory() as folder:
        path = inferred.save(os.path.join(folder, "net"))
        poptorch.load(path)(part)
    trained.destroy()
    inferred.destroy()


def main() -> None:
    torch.manual_seed(0)
    importlib.import_module("torch.utils.data")  # so that it is there before

    before = record()
    import poptorch  # noqa: F401
    imported = record()
    random_state = torch.get_rng_state()
    use_everything()
    torch.set_rng_state(random_state)  # the program drew its weights
    gc.collect()
    print(json.dumps([differences(before, imported), differences(imported, record())]))


if __name__ == "__main__":
    main()
