"""How the tables of operations are written."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

_WORDS = {int: "an int", float: "a float", str: "a string",
          list[int]: "a list of ints", list[float]: "a list of floats",
          list[str]: "a list of strings"}


@dataclass(frozen=True)
class Attribute:
    """One attribute.

    Attributes:
        kind: int, float, str, or a list of one of them.
        default: ``inspect.Parameter.empty`` where it has none.
    """

    kind: type
    default: object

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def words(self) -> str:
        """The kind, in words."""
        return _WORDS[self.kind]

    def takes(self, value) -> bool:
        """Whether a value is of the kind; ints pass for floats."""
        several = self.kind not in (int, float, str)
        if several != isinstance(value, list):
            return False
        kind = self.kind.__args__[0] if several else self.kind
        kinds = (int, float) if kind is float else kind
        return all(isinstance(item, kinds) for item in (value if several else [value]))


@dataclass(frozen=True)
class Row:
    """One operation.

    Attributes:
        domain, name: as programs write them.
        first, last: the versions in which it is what the function computes.
        function: takes the inputs, and the attributes by keyword.
    """

    domain: str
    name: str
    first: int
    last: int
    function: Callable

    def attributes(self) -> dict[str, Attribute]:
        """The attributes by name. Their kind is what is annotated, or that of the default."""
        return {p.name: Attribute(type(p.default) if p.annotation is p.empty else p.annotation,
                                  p.default)
                for p in inspect.signature(self.function).parameters.values()
                if p.kind is p.KEYWORD_ONLY}

    def counts(self) -> tuple[int, int | None]:
        """The fewest and the most inputs; None: any number."""
        kinds = [p for p in inspect.signature(self.function).parameters.values()
                 if p.kind is not p.KEYWORD_ONLY]
        fewest = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in kinds)
        has_any = any(p.kind is p.VAR_POSITIONAL for p in kinds)
        return fewest, None if has_any else len(kinds)

    def input_words(self) -> str:
        """How many inputs it takes, in words."""
        fewest, most = self.counts()
        if most is None:
            return f"{fewest} or more"
        return f"{fewest}" if most == fewest else f"{fewest} to {most}"

    def attribute_words(self) -> str:
        """The attributes with their defaults, in Markdown."""
        return ", ".join(f"`{name}` ({attribute.words})" if attribute.is_required else
                         f"`{name}={attribute.default!r}`"
                         for name, attribute in self.attributes().items())
