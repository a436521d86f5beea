"""A class of results as libraries of transformers write it: a dictionary and a dataclass."""

import collections
import dataclasses
import functools

import torch
from torch.utils import _pytree as torch_pytree


class ModelOutput(collections.OrderedDict):
    """Its fields that are not None are its entries, and the other way round."""

    def __init_subclass__(cls) -> None:
        torch_pytree.register_pytree_node(
            cls, lambda output: (list(output.values()), list(output.keys())),
            functools.partial(_unflattened, output_type=cls))

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __delitem__(self, *args, **kwargs):
        raise TypeError("entries are not removed")

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __reduce__(self):
        if not dataclasses.is_dataclass(self):
            return super().__reduce__()
        made, _, *rest = super().__reduce__()
        return made, tuple(getattr(self, field.name) for field in dataclasses.fields(self)), *rest

    def to_tuple(self) -> tuple:
        return tuple(self.values())


def _unflattened(values, keys, output_type):
    return output_type(**dict(zip(keys, values)))


@dataclasses.dataclass
class Output(ModelOutput):
    """What a classifier returns."""

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    hidden: tuple | None = None
