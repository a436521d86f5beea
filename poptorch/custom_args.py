"""Classes of the user's own that hold tensors: how to take them apart and put them together."""

import abc
from collections.abc import Iterable, Iterator
from typing import Any

import torch


class ICustomArgParser(abc.ABC):
    """Says which tensors an object of some class holds, and makes one of other tensors.

    Subclass it and pass an instance to :func:`registerCustomArgParser`.

    Example:
        >>> import poptorch, torch
        >>> class Boxes:
        ...     def __init__(self, corners, labels):
        ...         self.corners, self.labels = corners, labels
        >>> class BoxesParser(poptorch.ICustomArgParser):
        ...     def yieldTensors(self, struct):
        ...         yield struct.corners
        ...         yield struct.labels
        ...     def reconstruct(self, original_structure, tensor_iterator):
        ...         return Boxes(next(tensor_iterator), next(tensor_iterator))
        >>> boxes = Boxes(torch.zeros(3, 4), torch.ones(3))
        >>> [tuple(t.shape) for t in BoxesParser().yieldTensors(boxes)]
        [(3, 4), (3,)]
    """

    @abc.abstractmethod
    def yieldTensors(self, struct: Any) -> Iterable[torch.Tensor]:
        """Yields the tensors of ``struct``, always in the same order.

        Args:
            struct: an object of the class that this parser was registered for.
        """

    @abc.abstractmethod
    def reconstruct(self, original_structure: Any,
                    tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """Returns an object like ``original_structure`` that holds other tensors.

        Args:
            original_structure: an object of the registered class; it must stay as it is. In a
                model that was loaded from a file it has no tensors.
            tensor_iterator: gives as many tensors as :meth:`yieldTensors`, in its order. Their
                first dimension may be longer or shorter than in ``original_structure``.
        """


_parsers: dict[type, ICustomArgParser] = {}


def registerCustomArgParser(input_class_type: type, parser: ICustomArgParser) -> None:
    """Makes objects of a class known as holders of tensors: as arguments, as results, and as
    batches of :class:`poptorch.DataLoader`.

    Lists, tuples, dictionaries and dataclasses need no parser, nor do classes that
    ``torch.utils._pytree.register_pytree_node`` has registered. A parser goes before all of them.

    Args:
        input_class_type: the class; its subclasses follow, unless they have a parser of their
            own. Registering a class again replaces its parser.
        parser: an object with the methods of :class:`ICustomArgParser`.

    Raises:
        TypeError: ``input_class_type`` is not a class, or ``parser`` lacks a method.

    Example:
        >>> import poptorch
        >>> class Pair:
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        >>> class PairParser(poptorch.ICustomArgParser):
        ...     def yieldTensors(self, struct):
        ...         yield from (struct.a, struct.b)
        ...     def reconstruct(self, original_structure, tensor_iterator):
        ...         return Pair(*tensor_iterator)
        >>> poptorch.registerCustomArgParser(Pair, PairParser())
    """
    if not isinstance(input_class_type, type):
        raise TypeError(f"[registerCustomArgParser] expected a class, got {input_class_type!r}. "
                        f"Pass the class whose objects hold tensors.")
    lacking = [name for name in ("yieldTensors", "reconstruct")
               if not callable(getattr(parser, name, None))]
    if lacking or isinstance(parser, type):
        what = f"the class {parser.__name__}" if isinstance(parser, type) else repr(parser)
        raise TypeError(f"[registerCustomArgParser] expected an object with the methods "
                        f"yieldTensors and reconstruct, got {what}. Pass an instance of a "
                        f"subclass of poptorch.ICustomArgParser.")
    _parsers[input_class_type] = parser


def parser_for(cls: type) -> ICustomArgParser | None:
    """The parser registered for a class or the nearest of its bases, or None."""
    if not _parsers:
        return None
    return next((_parsers[c] for c in cls.__mro__ if c in _parsers), None)
