"""Tensors without elements that are passed as ``out=``: they get the shape of the result."""

import torch

from poptorch._capture.decompose.functional_ops import functional_form


class OutArguments:
    """Lets, for a :class:`Recorder`, tensors become what an operation gives."""

    def __init__(self, recorder):
        self._recorder = recorder

    def handler(self, func, otherwise):
        """The handler of an operation with ``out=``; ``otherwise`` where the shapes are equal."""
        names = [argument.name for argument in func._schema.arguments if argument.is_out]

        def handle(func, args, kwargs):
            given = [kwargs[name] for name in names if name in kwargs]
            form = functional_form(func)
            if form is None or not all(isinstance(out, torch.Tensor) for out in given):
                return otherwise(func, args, kwargs)
            others = {name: value for name, value in kwargs.items() if name not in names}
            faked = self._recorder._faked
            expected = _as_list(form(*map(faked, args), **faked(others)))
            if all(a.shape == b.shape for a, b in zip(expected, given)):
                return otherwise(func, args, kwargs)
            with self._recorder:
                results = _as_list(form(*args, **others))
            for out, result in zip(given, results, strict=True):
                self._become(func, out, result)
            return given[0] if len(given) == 1 else tuple(given)

        return handle

    def _become(self, func, out, result) -> None:
        recorder = self._recorder
        if out.shape == result.shape:
            with recorder:
                out.copy_(result)
            return
        if not recorder.shapes.is_replaceable(out):
            raise recorder.error(
                f"[capture] an out= tensor has shape {list(out.shape)} but the result has "
                f"{list(result.shape)}. Make it of that shape, or use the returned tensor.")
        if not torch.can_cast(result.dtype, out.dtype):
            raise recorder.error(
                f"[capture] {func} gives {result.dtype}, which cannot be written to an out= tensor "
                f"of {out.dtype}. Use the returned tensor.")
        with recorder:
            result = result.to(out.dtype, copy=True)
        recorder.shapes.replace(out, result, func)


def _as_list(results) -> list:
    return list(results) if isinstance(results, (tuple, list)) else [results]
