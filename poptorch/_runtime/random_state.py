"""The state of the device's random generator: its seed and how often it has moved on."""

import torch

from poptorch.errors import Error

_PATH = "rng"


class RandomState:
    """The random generator of one program, which is given the seed of the options."""

    def __init__(self, executable, random_seed: int | None):
        self._executable = executable
        self._is_used = any(state.path == _PATH for state in executable.states())
        self._unused: list[int] = []  # the state of a program that draws no random numbers
        seed = torch.initial_seed() if random_seed is None else random_seed
        self.write([seed & (2**64 - 1), *[0] * executable.replicas])

    def read(self) -> list[int]:
        """Seed, then the counter of each replica."""
        executable = self._executable
        if not self._is_used:
            return list(self._unused)
        counters = []
        for replica in range(executable.replicas):
            words = torch.empty(4, dtype=torch.int32)
            executable.read_state(_PATH, words.data_ptr(), words.nbytes, replica)
            low, high, _, counter = (int(word) & 0xFFFFFFFF for word in words)
            counters.append(counter)
        return [low | high << 32, *counters]

    def write(self, state: list[int]) -> None:
        """Sets what :meth:`read` returned; an Error for anything else."""
        executable = self._executable
        wanted = 1 + executable.replicas
        is_list = isinstance(state, (list, tuple)) and len(state) == wanted and all(
            isinstance(word, int) and not isinstance(word, bool) for word in state)
        if not is_list or not 0 <= state[0] < 2**64 or not all(0 <= c < 2**32 for c in state[1:]):
            raise Error(f"[rng_state] expected a list of {wanted} ints (the seed, of 64 bits, and "
                        f"a counter of 32 bits for each of {executable.replicas} replicas), got "
                        f"{state!r:.80}. Use a value that rng_state gave.")
        if not self._is_used:
            self._unused = list(state)
            return
        seed, *counters = state
        for replica, counter in enumerate(counters):
            words = [seed & 0xFFFFFFFF, seed >> 32, replica, counter]
            tensor = torch.tensor(words, dtype=torch.int64).to(torch.int32)
            executable.write_state(_PATH, tensor.data_ptr(), tensor.nbytes, replica)
