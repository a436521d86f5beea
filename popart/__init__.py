"""Enumerations by their back-end names, for programs that give them to ``options._Popart.set``.

Programs of PopTorch import ``popart`` for nothing but ``int(popart.<Enum>.<Member>)``. The values
are kept by the options and change nothing, as the reference page of the options says.
"""

from poptorch._compat.backend_enums import *  # noqa: F403
from poptorch._compat.backend_enums import __all__ as __all__
