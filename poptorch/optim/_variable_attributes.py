"""Which attributes of an optimizer may change while a compiled model is trained."""

from collections.abc import Iterable


class VariableAttributes:
    """Which attributes of an optimizer are variable, and which are constant.

    Each optimizer of ``poptorch.optim`` has one, ``variable_attrs``. Attributes that were passed
    to the optimizer are variable, others are constant; the learning rate is always variable. To
    change a constant after the model is compiled is an error, so mark it before.

    Args:
        variable_attributes: names of those that are variable.
        allowed_attributes: names of all.

    Raises:
        ValueError: A variable one is not among all.

    Example:
        >>> import poptorch, torch
        >>> net = torch.nn.Linear(2, 2)
        >>> opt = poptorch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        >>> opt.variable_attrs.isConstant("momentum"), opt.variable_attrs.isConstant("dampening")
        (False, True)
        >>> opt.variable_attrs.markAsVariable("dampening")
        >>> opt.variable_attrs.isConstant("dampening")
        False
    """

    def __init__(self, variable_attributes: Iterable[str], allowed_attributes: Iterable[str]):
        self._allowed = list(allowed_attributes)
        self._variable: set[str] = set()
        for name in variable_attributes:
            self.markAsVariable(name)

    def __contains__(self, attr: str) -> bool:
        return attr in self._allowed

    def isConstant(self, attr: str) -> bool:
        """Whether an attribute is constant.

        Args:
            attr: its name.

        Raises:
            ValueError: The optimizer has no such attribute.

        Example:
            >>> from poptorch.optim import VariableAttributes
            >>> VariableAttributes(["lr"], ["lr", "momentum"]).isConstant("momentum")
            True
        """
        self._check(attr, "isConstant")
        return attr not in self._variable

    def markAsConstant(self, attr: str) -> None:
        """Makes an attribute constant: it must not change once the model is compiled.

        Args:
            attr: its name. The learning rate can be changed all the same.

        Raises:
            ValueError: The optimizer has no such attribute.

        Example:
            >>> from poptorch.optim import VariableAttributes
            >>> attributes = VariableAttributes(["lr", "momentum"], ["lr", "momentum"])
            >>> attributes.markAsConstant("momentum")
            >>> attributes.isConstant("momentum")
            True
        """
        self._check(attr, "markAsConstant")
        self._variable.discard(attr)

    def markAsVariable(self, attr: str) -> None:
        """Makes an attribute variable: it may change between calls of the compiled model.

        Args:
            attr: its name.

        Raises:
            ValueError: The optimizer has no such attribute.

        Example:
            >>> from poptorch.optim import VariableAttributes
            >>> attributes = VariableAttributes([], ["lr", "momentum"])
            >>> attributes.markAsVariable("momentum")
            >>> attributes.isConstant("momentum")
            False
        """
        self._check(attr, "markAsVariable")
        self._variable.add(attr)

    def _check(self, attr: str, where: str) -> None:
        if attr not in self._allowed:
            raise ValueError(f"[VariableAttributes.{where}] the optimizer has no attribute "
                             f"{attr!r}. Its attributes are: {', '.join(self._allowed)}.")
