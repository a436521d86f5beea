"""What counts as a look at ``optimizer.state``, see ``live.py``."""

import collections

_LOOKS = ("__contains__", "__delitem__", "__getitem__", "__ior__", "__iter__", "__len__",
          "__reversed__", "__setitem__", "clear", "get", "items", "keys", "pop", "popitem",
          "setdefault", "update", "values")


def add_to(cls: type) -> None:
    """Gives a subclass of ``defaultdict`` methods that call its ``settle()`` first."""
    for name in _LOOKS:
        setattr(cls, name, _looking(name))


def _looking(name: str):
    original = getattr(collections.defaultdict, name)

    def method(self, *args, **kwargs):
        self.settle()
        return original(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, original.__doc__
    return method
