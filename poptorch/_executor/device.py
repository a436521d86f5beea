"""Which device a program runs on, and the seed of its random generator."""

import torch

from poptorch._logging import logger
from poptorch.options import Options

_said: set[str] = set()


def choose_device(options: Options) -> None:
    """Chooses the device. There is one kind so far, the IPU Model; the log says so once."""
    if options.use_ipu_model is False:
        _once(logger.warning, "useIpuModel(False) asks for an IPU system, none is present: "
                              "running on the IPU Model.")
    elif options.use_ipu_model is None:
        _once(logger.info, "No IPU system is present: running on the IPU Model.")


def _once(log, message: str) -> None:
    if message not in _said:
        _said.add(message)
        log(message)


def initial_rng_state(seed: int | None) -> list[int]:
    """The first two words of the device's random state, for a seed.

    Args:
        seed: 64 bits; None: the seed that torch's default generator was last given.
    """
    bits = (torch.initial_seed() if seed is None else seed) & (2**64 - 1)
    return [_signed(bits & 0xFFFFFFFF), _signed(bits >> 32)]


def _signed(word: int) -> int:
    return word - 2**32 if word >= 2**31 else word
