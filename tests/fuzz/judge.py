"""What bad input may lead to, and how many examples a run of these tests tries.

Examples are new in each run; the seed in the header of the run repeats them. ``make fuzz`` sets
``POPTORCH_FUZZ``, by which their number is multiplied; what fails is then shrunk, too.
"""

import os
import re

from hypothesis import HealthCheck, Phase, settings

import poptorch

FACTOR = int(os.environ.get("POPTORCH_FUZZ", "1"))
ACCEPTED = (poptorch.Error, TypeError, ValueError, AttributeError, AssertionError)
# Shrinking a failure can take minutes, which the default run does not have.
PHASES = (Phase.generate, Phase.shrink)[:1 if FACTOR == 1 else 2]

# What Python and the engine say in cases without a message: no cause that a user can see.
ACCIDENT = re.compile(
    r"internal error|please report|'\w+' object |unhashable|unpack|unsupported operand|"
    r"not supported between|invalid literal|must be (real number|str|bytes|a string)|"
    r"module 'torch' has|is not iterable|object is not|codec can't|Boolean value of", re.IGNORECASE)


def budget(examples: int, **more) -> settings:
    """Settings of a test that tries ``examples`` examples by default."""
    return settings(max_examples=examples * FACTOR, deadline=None, database=None,
                    print_blob=FACTOR > 1, phases=PHASES,
                    suppress_health_check=list(HealthCheck), **more)


def check_refusal(error: Exception) -> None:
    """Fails unless an error is of an accepted class and its message names the cause."""
    assert isinstance(error, ACCEPTED), f"{type(error).__name__}: {error}"
    words = str(error)
    assert len(words) > 10 and not ACCIDENT.search(words), f"{type(error).__name__}: {words}"


def attempt(function, *args, **kwargs):
    """Calls a function: ``(result, None)``, or ``(None, error)`` with an error that is in order."""
    try:
        return function(*args, **kwargs), None
    except Exception as error:
        try:
            check_refusal(error)
        except AssertionError as unclear:
            raise unclear from error
        return None, error
