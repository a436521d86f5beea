"""Files that a command writes when its work is done."""

import os
from pathlib import Path

from poptorch.errors import Error


def check(path: str | None, where: str) -> None:
    """An Error before the work if the folder of a file does not exist. None: no file is written."""
    folder = Path(os.path.realpath(path or "file")).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise Error(f"[{where}] cannot write {path}: there is no folder {folder} that may be "
                    f"written to. Create it, or change the path.")
