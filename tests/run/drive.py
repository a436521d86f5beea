"""Runs IR text: compiles it, and calls the program on tensors by stream name."""

import torch

from poptorch import _C

DTYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16,
    "i32": torch.int32, "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16,
    "f32": torch.float32, "f64": torch.float64,
}


class Driver:
    """A program of IR text.

    Args:
        text: a translated module, or with ``planned`` a planned one.
        options: of ``_C.compile``.
    """

    def __init__(self, text, *, planned=False, **options):
        if planned:
            self.executable = _C.assemble_text(text, options)
        else:
            self.executable = _C.compile(_C.parse(text), options)
        self.streams = self.executable.streams()
        self.states = {state.path: state for state in self.executable.states()}
        self.threads = options.get("threads", 1)

    def __call__(self, **inputs):
        """Runs one call on ``{stream: tensor}``; returns ``{stream: tensor}``."""
        tensors = {}
        for stream in self.streams:
            slices = self.executable.host_slices(stream.name)
            shape = (slices, *stream.sizes)
            if stream.is_input:
                tensor = torch.as_tensor(inputs.pop(stream.name), dtype=DTYPES[stream.dtype])
                assert tensor.numel() == torch.Size(shape).numel(), (stream.name, tensor.shape)
                tensors[stream.name] = tensor.contiguous()
            else:
                tensors[stream.name] = torch.full(shape, 77, dtype=DTYPES[stream.dtype])
        assert not inputs, f"no such streams: {list(inputs)}"
        self.executable.run([t.data_ptr() for t in tensors.values()], self.threads)
        return {s.name: tensors[s.name] for s in self.streams if not s.is_input}

    def write(self, path, value, replica=None):
        """Writes a state from a tensor or nested list."""
        state = self.states[path]
        tensor = torch.as_tensor(value, dtype=DTYPES[state.dtype]).expand(state.sizes).contiguous()
        self.executable.write_state(path, tensor.data_ptr(), tensor.nbytes, replica)

    def read(self, path, replica=0):
        """The tensor that a state holds."""
        state = self.states[path]
        tensor = torch.empty(state.sizes, dtype=DTYPES[state.dtype])
        self.executable.read_state(path, tensor.data_ptr(), tensor.nbytes, replica)
        return tensor
