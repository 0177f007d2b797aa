"""Tells by its name, and where that is ambiguous by the value, whether something is a secret.

Upper and lower case, and how words are joined, make no difference: ``HF_TOKEN``, ``hub.token``,
``hfToken`` and ``hftoken`` are names of secrets. In doubt a name is one, unless it speaks of data:
``--pad-token``, ``--image-key``, ``--max-tokens``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MAX_NAME: Final = 200
# In what is left of a name without what separates its words.
_ANYWHERE: Final = re.compile(
    r"PASSW|PASSPHRASE|PASSCODE|SECRET|CREDENTIAL|SSHPASS|AUTHORIZATION|COOKIE|BEARER"
    r"|CONNECTIONSTRING|FROMLITERAL|MNEMONIC"
    r"|(?:ACCESS|ACCOUNT|API|APP|AUTH|BOT|CLIENT|DEPLOY|ENCRYPTION|LICENSE|MASTER|PRIV|PRIVATE"
    r"|REFRESH|SECURITY|SERVICE|SESSION|SHARED|SIGNING|SSH|STORAGE)(?:KEY|TOKEN)"
)
_AT_END: Final = re.compile(
    r"(?P<of>.*?)(?:(?P<data>TOKEN|KEY|AUTH|SIG|SIGNATURE)|PASS|PW|PWD|CREDS?|JWT|DSN)"
    r"|(?:PAT|PIN|PSK|OTP|SALT|SAS|SID)"
)
"""A last word, or the end of it; tokens and keys may be those of a text or a sample."""
_WITHOUT_SECRET: Final = frozenset({"BYPASS", "COMPASS", "ENCOMPASS", "MONKEY", "SURPASS"})
_OF_DATA: Final = re.compile(
    r"ANSWER|ASSISTANT|ATTENTION|AUDIO|BACKWARD|BATCH|BLANK|BOI|BOS|CACHE|CAPTION|CATEGORY"
    r"|CHOSEN|CLASS|CLS|COLUMN|CONFIG|CONTENT|CORE|CPU|DATA|DATASET|DECODER|DICT|DOCUMENT"
    r"|ENCODER|END|EOD|EOI|EOS|EOT|EVAL|FEATURE|FEATURES|FIELD|FIRST|FOREIGN|FORWARD|GPU|GROUP"
    r"|HASH|IMAGE|IMG|INDEX|INPUT|ITEM|JPG|JSON|LABEL|LAST|LATENT|LOSS|MASK|MAX|MESSAGE|MESSAGES"
    r"|METRIC|MIDDLE|MIN|MONITOR|MULTI|NEWLINE|NUM|ONE|OUTPUT|PAD|PADDING|PARTITION|PER"
    r"|PLACEHOLDER|PNG|PREFIX|PRIMARY|PROMPT|QUERY|RANK|REJECTED|RESPONSE|SAMPLE|SEP|SEPARATOR"
    r"|SEQUENCE|SHARD|SINGLE|SORT|SOURCE|SPECIAL|SPEECH|STAGE|START|STATE|STOP|SUFFIX|TARGET"
    r"|TEXT|THINK|TITLE|TOOL|TRAIN|TWO|UNK|URL|USE|VALUE|VIDEO|VISION|WARMUP"
)
"""What tokens, keys and passes are of that are no secrets."""
_BEHIND: Final = re.compile(
    r"ADMIN|ARG|B|BASE|CI|CURRENT|DEFAULT|DEV|ENV|HEX|MAIN|NEW|OLD|PROD|PRODUCTION|RAW|READONLY"
    r"|RO|ROOT|RW|STAGING|STR|STRING|TEMP|TEST|TMP|VALUE|VAR|WRITE|X"
)
"""Last words of names that do not say what a thing is."""
_ABOUT: Final = re.compile(
    r"ALGORITHM|CLASS|COLUMN|COUNT|DIR|DIRECTORY|ENABLED|ENDPOINT|EXPIRY|FIELD|FILE|FILENAME|FOLDER"
    r"|FORMAT|HOST|LENGTH|LIMIT|MANAGER|METHOD|MODE|NAME|PATH|POLICY|PORT|PROVIDER|REQUIRED|SIZE|SOCK"
    r"|STDIN|TIMEOUT|TTL|TYPE|URI|URL|USER|USERNAME|VERSION"
)
"""Last words of names whose values tell something about a secret, and are none."""
_PREPOSITION: Final = frozenset({"FOR", "OF", "TO"})

_NOTHING: Final = re.compile(r"(?:true|false|yes|no|on|off|none|null|auto|\W{0,3})", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[-+]?[0-9]{1,6}(?:\.[0-9]{0,6})?(?:[eE][-+]?[0-9]{1,2})?")


def is_secret(
    name: str, value: str | None, may_be_shown: Callable[[str], bool] | None = None
) -> bool:
    """Say whether a value is a secret, or, without one, whether values of the name may be.

    With ``may_be_shown`` it is a variable, and a secret unless that allows its name.
    """
    if value is not None and _NOTHING.fullmatch(value):
        return False
    told, of_number = _told(name[-_MAX_NAME:])
    if value is not None and _NUMBER.fullmatch(value):
        return of_number
    return told if may_be_shown is None else not may_be_shown(name)


def names_secret(name: str) -> bool:
    """Say whether a name is one of secrets."""
    return is_secret(name, None)


@lru_cache(maxsize=4096)
def _told(name: str) -> tuple[bool, bool]:
    """Say whether values of the name are secrets, and whether numbers among them are."""
    words = [word.upper() for word in _WORD.findall(name)]
    if "WEBHOOK" in words:
        return True, False
    if not words or _ABOUT.fullmatch(words[-1]) or name in ("PWD", "OLDPWD"):
        return False, False
    if _ANYWHERE.search("".join(words)):
        return True, True
    # The last word says what a thing is, or the one before what it is for.
    cut = next((at for at, word in enumerate(words) if at and word in _PREPOSITION), len(words))
    found = [_told_by_last(words), _told_by_last(words[:cut])]
    return any(told for told, _ in found), any(of_number for _, of_number in found)


def _told_by_last(words: list[str]) -> tuple[bool, bool]:
    end = len(words)
    while end > 1 and _BEHIND.fullmatch(words[end - 1]):
        end -= 1
    last, before = words[end - 1], "".join(words[max(end - 2, 0) : end - 1])
    found = _AT_END.fullmatch(last)
    if found is None or last in _WITHOUT_SECRET or _OF_DATA.fullmatch(found["of"] or before):
        return False, False
    return True, found["data"] is None
