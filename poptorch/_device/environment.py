"""The environment variables about devices and compiled programs."""

import os

from poptorch.options import Options

# The first of them that is set says whether programs run on the IPU Model.
MODELS = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")
WAIT = "POPTORCH_WAIT_FOR_IPU"
_CACHE = "POPTORCH_CACHE_DIR"


def check() -> None:
    """Checks the variables."""
    for variable in (*MODELS, WAIT):
        switch(variable)
    folder = os.environ.get(_CACHE)
    if folder:
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise ValueError(f"[{_CACHE}] expected a folder, got {folder!r}, which is none. Set "
                             f"it to a folder, or unset it.")


def cache_folder(options: Options) -> str | None:
    """The folder that keeps compiled programs; None: nothing is kept.

    The option decides if it was set, also to None.
    """
    if options._Popart.options.get("enableEngineCaching") is False:
        return None
    if "executable_cache_path" in options._chosen:
        return options.executable_cache_path or None
    return os.environ.get(_CACHE) or None


def is_model_wanted(options: Options) -> bool:
    """Whether options or environment choose the IPU Model: the first one that says anything."""
    if options.use_ipu_model is not None:
        return options.use_ipu_model
    said = (switch(variable) for variable in MODELS)
    return next((is_on for is_on in said if is_on is not None), False)


def is_model_small(options: Options) -> bool:
    """Whether the IPU Model has few tiles: ``POPTORCH_SMALL_IPU_MODEL`` is 1 and chooses it, or the
    options choose it."""
    model, small = map(switch, MODELS)
    return model is None and bool(small) and is_model_wanted(options)


def rounded_up(ipus: int) -> int:
    """The IPUs of the smallest device that has so many: a power of two."""
    return 1 << (ipus - 1).bit_length()


def switch(variable: str) -> bool | None:
    """What a variable that is 0 or 1 says; None if it is not set, or empty."""
    text = os.environ.get(variable)
    if not text:
        return None
    if text not in ("0", "1"):
        raise ValueError(f"[{variable}] expected 0 or 1, got {text!r}. Set it to one of them, or "
                         f"unset it.")
    return text == "1"
