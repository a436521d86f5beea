"""How a file of rules collects them."""


class Rules(dict):
    """ATen name -> rule. Use an instance as a decorator factory: ``@rules("aten::neg")``."""

    def __call__(self, *names: str):
        """Registers the decorated function under each of ``names``."""
        def register(function):
            for name in names:
                self[name] = function
            return function
        return register
