"""``python -m poptorch``: the same commands as ``poptorch``."""

import sys

from poptorch._command.parser import main

if __name__ == "__main__":
    sys.exit(main())
