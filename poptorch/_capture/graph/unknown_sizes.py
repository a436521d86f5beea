"""Tensors with a size that is only known at run time: a tensor of a known size holds their
elements, and others that do not count."""

import torch

from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._base.torch_private.basic import make_subclass


class UnknownSize(torch.Tensor):
    """Stands for such a tensor; it has no data. The subclasses have what it stands for."""

    @classmethod
    def make(cls, requires_grad: bool = False, **attributes):
        """A new one, with these attributes; autograd gets whether a gradient flows into it."""
        with private.without_modes():
            made = make_subclass(cls, torch.empty(0), requires_grad)
        vars(made).update(attributes)
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise cls.refusal(func)

    @classmethod
    def refusal(cls, func) -> Exception:
        """What is raised for an operation that needs the size."""
        return fake_tensors.DynamicOutputShapeException(torch.ops.aten.nonzero.default)

    def is_of_function(self) -> bool:
        """Whether an autograd function of the user's gave it, whose gradient is not that of what
        it stands for."""
        with private.without_modes():
            return self.grad_fn is not None

    def call(self, capture, func, args: tuple, kwargs: dict):
        """The result of a function that has it among its arguments; or raises its refusal."""
        raise self.refusal(func)


def has_no_data(value) -> bool:
    """Whether a value is a tensor without data: a fake one, or one with an unknown size."""
    return fake_tensors.is_fake(value) or isinstance(value, UnknownSize)


def argument_of(types, args, kwargs) -> UnknownSize | None:
    """The first such tensor among the arguments of a call of torch."""
    if not any(issubclass(kind, UnknownSize) for kind in types):
        return None
    return next(_within((args, kwargs)), None)


def _within(value):
    if isinstance(value, UnknownSize):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _within(item)
    elif isinstance(value, dict):
        yield from _within(list(value.values()))
