"""Environment variables that hold a JSON object."""

import json
from typing import Any


def json_object(variable: str, text: str, example: str) -> dict[str, Any]:
    """The settings that an environment variable holds as text; ``example`` is for error messages.
    """
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"[{variable}] is no JSON: {error}. Write for instance "
                         f"{example}.") from None
    if not isinstance(settings, dict):
        raise ValueError(f"[{variable}] must be a JSON object, got {text}. Write for instance "
                         f"{example}.")
    return settings
