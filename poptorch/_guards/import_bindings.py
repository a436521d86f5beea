"""What variables of a function stand for that imports inside of it."""

import importlib.util


class Imports:
    """Follows the instructions of one function.

    Args:
        variables: its globals.
    """

    def __init__(self, variables: dict):
        self._package = variables.get("__package__")
        self._constants: list = [None, None]
        self._from: str | None = None
        # What an instruction of import has just loaded.
        self._loaded: tuple[str, ...] | None = None
        self._local: dict[str, tuple[str, ...]] = {}

    def names(self, kind: str, argument) -> tuple[str, ...] | None:
        """A module, as ``sys.modules`` has it, and names of attributes from there on, if an
        instruction reads a variable that stands for that; None for others.

        Args:
            kind: the name of the instruction.
            argument: its argument.
        """
        loaded, self._loaded = self._loaded, None
        if kind == "LOAD_CONST":
            self._constants = [self._constants[1], argument]
        elif kind == "IMPORT_NAME":
            self._import(argument)
        elif kind == "IMPORT_FROM":
            base = loaded if self._from is None and loaded else (self._from,)
            self._loaded = (*base, argument)
        elif kind == "STORE_FAST" and loaded is not None:
            self._local[argument] = loaded
        elif kind == "STORE_FAST":
            self._local.pop(argument, None)
        elif kind.startswith("LOAD_FAST"):
            return self._local.get(argument)
        elif kind in ("SWAP", "POP_TOP"):  # between the parts of `import a.b.c as d`
            self._loaded = loaded
        return None

    def _import(self, name: str) -> None:
        level, wanted = self._constants
        if level:
            try:
                name = importlib.util.resolve_name("." * level + name, self._package)
            except ImportError:
                return
        self._from = name if wanted else None
        self._loaded = (name if wanted else name.partition(".")[0],)
