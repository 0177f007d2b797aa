"""What of a command may be written down: values that look like secrets are masked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A tokenizer and an author are no secrets, and PASS is one only where no letter touches it.
_SECRET: Final = re.compile(
    r"TOKEN(?!IZ)|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTH(?!ORS?(?![A-Z]))"
    r"|(?<![A-Z])PASS(?![A-Z])",
    re.IGNORECASE,
)
_HEADER: Final = re.compile(r"((?:Authorization:|Bearer )\s*).+", re.IGNORECASE | re.DOTALL)
_PASSWORD: Final = re.compile(r"(://[^/@:\s]*:)[^/@\s]+@")
_MASK: Final = "***"


def masked_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the values that look like secrets by their names."""
    return {name: _MASK if _SECRET.search(name) else value for name, value in environment.items()}


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments without the values that look like secrets by what they are given to.

    These are the rest of ``NAME=VALUE``, wherever in an argument it stands, the argument behind an
    option, what follows ``Authorization:`` or ``Bearer``, and the password in an address.
    """
    masked = []
    option = ""
    for argument in arguments:
        is_option = argument.startswith("--")
        # An option too many is masked sooner than a secret that begins with a dash is shown.
        hidden = _SECRET.search(option) and not is_option
        masked.append(_MASK if hidden else _masked_argument(argument))
        option = argument if argument.startswith("-") and "=" not in argument else ""
    return masked


def _masked_argument(argument: str) -> str:
    """The argument without all that stands behind the first secret's name and ``=``."""
    argument = _HEADER.sub(rf"\1{_MASK}", _PASSWORD.sub(rf"\1{_MASK}@", argument))
    parts = argument.split("=")
    for index, name in enumerate(parts[:-1]):
        if _SECRET.search(name):
            return "=".join((*parts[: index + 1], _MASK))
    return argument
