"""Decides what others may read of commands and messages, by where a word comes from.

A value whose name says that it is a secret is hidden everywhere. Of other given values others read
a digest, unless the caller knows them to be public. In a message nothing is touched but given
values and tokens of fixed forms.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from pytest_dlperf.files.writing import write_whole

MASK: Final = "***"
SALT_FILE: Final = "salt"
_DIGITS: Final = 4
"""Hexadecimal digits of a digest: enough to tell a change, too few to confirm a guess."""
_MIN_LENGTH: Final = 6
"""A shorter value would be found everywhere in a message."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET: Final = re.compile(
    r"\b(?:token|secret|password|passwd|passphrase|pw|pat|key|credentials?|auth(?:orization)?|bearer"
    r"|webhook)\b"
)
_NO_SECRET: Final = re.compile(
    # A token of a text, or a key of a record or of an attention.
    r"\b(?:num|max|min|per|pad|eos|bos|unk|sep|cls|mask|image|audio|video|special|stop|sort|primary"
    r"|query|attention|heads?|dim|moe) (?:.* )?(?:token|key)\b"
    r"|\b(?:token|key) (?:.* )?(?:value|type|mask|heads?|dim|proj|norm|loss)\b"
    # The last word says what of a secret it is.
    r"|\b(?:file|path|dir|directory|name|type|mode|method|size|length|count|limit|timeout|sock|host"
    r"|port|user|version|column|endpoint|ids?|(?<!webhook )url)$"
)
_SWITCH: Final = "true|false|yes|no|on|off|none|null|auto|"
_HARMLESS: Final = re.compile(rf"{_SWITCH}[-+]?[0-9]{{1,3}}(?:\.[0-9]{{0,6}})?", re.IGNORECASE)
"""Values that are no secrets, whatever they are called."""
_PUBLIC: Final = re.compile(
    rf"{_SWITCH}--[A-Za-z][\w.-]*|--?[A-Za-z]{{0,4}}"
    r"|[-+]?(?:[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(?:[eE][-+]?[0-9]{1,3})?",
    re.IGNORECASE,
)
"""Switches, names of options, and numbers."""
_ASSIGNED: Final = re.compile(
    r"(?:--[A-Za-z][\w.-]*|-[A-Za-z]{1,4}|-D[\w.]+|[+~]{0,2}[a-z_][a-z0-9_./@-]*)=(?=[^=])"
)

_NAMED: Final = re.compile(
    r"(?<![\w./-])(?P<name>-{0,2}[A-Za-z_][\w.-]{0,200})"
    r"(?:(?P<set>\\?[\"']?\]?\s{0,3}[:+]?[=:](?!//)\s{0,3}\[?)"
    r"|(?P<apart>\\?[\"']?,?)[\s\\]{1,99}(?!-))"
)
"""A name, and what stands between it and its value."""
_VALUE: Final = re.compile(
    r"\\?\"(?:[^\"\\]|\\[^\"])*(?:\\?\")?|'[^']*'?"
    r"|(?:(?i:bearer|basic|token)\s+)?[^\s\"',;&|()<>}\]]+"
)
_SETS_NEXT: Final = re.compile(r"--?[\w.-]+|[\w-]*[._][\w.-]+|passw(?:or)?d|passphrase")
"""An argument whose value is the next one: an option, or a name that is no plain word."""
_EXPORTS: Final = ("-x", "-e", "--env")
"""The name of a variable follows, without its value."""
_SCRIPT_FOLLOWS: Final = re.compile(r"-[a-z]*c")
_TOKEN: Final = re.compile(
    r"\b(?:hf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{16,}|gh[a-z]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}|AKIA[A-Z0-9]{12,}|sk-(?=[\w-]*[0-9])[\w-]{20,}"
    r"|eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]+)"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:.*?-----END [A-Z ]{0,30}PRIVATE KEY-----|.*)"
    r"|(?P<user>://[^\s/:@'\"]{0,256}:)(?P<password>[^\s/'\"]{1,1024})(?=@)",
    re.DOTALL,
)
"""A token of a fixed form, a private key, or the password in an address."""

_unspoken: Final[set[str]] = set()
"""Values that this process was given, and puts into no message."""


class Digests:
    """Stand for what others may not read: equal values look alike, and no guess can be tested.

    They are keyed by a random salt in ``folder``, which is made when it is first needed. Where that
    cannot be done, all values look alike.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / SALT_FILE

    def of_word(self, word: str) -> str:
        """Return an argument as others may read it."""
        value = closed_part(word)
        if not value:
            return word
        content = value.encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(content, key=self._salt[:64]).hexdigest()[:_DIGITS]
        return f"{word.removesuffix(value)}{MASK}{digest if self._salt else ''}"

    @cached_property
    def _salt(self) -> bytes:
        with suppress(OSError):
            if not self._file.exists():
                write_whole(self._file, f"{secrets.token_hex(16)}\n")
            if self._file.is_file():
                return self._file.read_bytes().strip()
        return b""


def closed_part(word: str) -> str:
    """Return what of an argument is neither the name of an option, nor a switch or a number."""
    named = _ASSIGNED.match(word)
    value = word[named.end() :] if named else word
    return "" if _PUBLIC.fullmatch(value) else value


@lru_cache(maxsize=4096)
def names_secret(name: str) -> bool:
    """Say whether a variable or argument of this name holds a secret, by the words in the name."""
    words = " ".join(_WORD.findall(name[-200:])).lower()
    return _SECRET.search(words) is not None and not _NO_SECRET.search(words)


def hide(text: str) -> str:
    """Hide the secrets in a command line, or in another text that is no message."""
    return _without(text, _named(text))


def hide_words(words: Sequence[str]) -> list[str]:
    """Hide the secrets in the arguments of a command; their number stays."""
    shown = []
    for earlier, before, word in zip(("", "", *words), ("", *words), words, strict=False):
        is_next = earlier not in _EXPORTS and not word.startswith("-")
        if is_next and _SETS_NEXT.fullmatch(before) and _is_secret(before, word):
            shown.append(_without(word, [(0, len(word))]))
        else:
            is_script = _SCRIPT_FOLLOWS.fullmatch(before) is not None
            shown.append(_without(word, _named(word, is_script=is_script)))
    return shown


def hide_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Hide the secrets among the values of variables."""
    return {
        name: _without(value, [(0, len(value))]) if _is_secret(name, value) else hide(value)
        for name, value in variables.items()
    }


def keep_quiet(values: Iterable[str]) -> None:
    """Have no message of this process say these values, or passwords in them."""
    for value in values:
        passwords = (token["password"] or "" for token in _TOKEN.finditer(value))
        _unspoken.update(text for text in (value, *passwords) if len(text) >= _MIN_LENGTH)


def unspoken() -> list[str]:
    """Return the values that no message says."""
    return sorted(_unspoken)


def in_message(text: str) -> str:
    """Hide what this process was given, and tokens, in what a program or an error says."""
    inherited = (value for name, value in os.environ.items() if names_secret(name))
    secret = _unspoken.union(value for value in inherited if len(value) >= _MIN_LENGTH)
    for value in sorted(secret, key=len, reverse=True):
        text = text.replace(value, MASK).replace(value.replace("\\", "\\\\"), MASK)
    return _without(text, ())


def _is_secret(name: str, value: str) -> bool:
    return names_secret(name) and not _HARMLESS.fullmatch(value)


def _named(text: str, *, is_script: bool = True) -> Iterator[tuple[int, int]]:
    """Find the values behind names of secrets; what is no script may be one assignment."""
    at = 0
    while match := _NAMED.search(text, at):
        at, name, is_apart = match.end("name"), match["name"], match["set"] is None
        if is_apart and name[0] != "-" and name.lower() != "bearer" and "," not in match["apart"]:
            continue
        if not names_secret(name):
            continue
        if not (is_apart or is_script or match.start()):
            span = match.end(), len(text)
        elif value := _VALUE.match(text, match.end()):
            span = value.span()
        else:
            continue
        if not _HARMLESS.fullmatch(text[slice(*span)].strip("\"'\\ ")):
            at = span[1]
            yield span


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Cut these and all tokens out; no message says these from now on."""
    shown, at = [], 0
    for begin, end in spans:
        keep_quiet([text[begin:end].strip("\"'\\ ")])
        shown += [text[at:begin], MASK]
        at = end
    return _TOKEN.sub(lambda token: f"{token['user'] or ''}{MASK}", "".join([*shown, text[at:]]))
