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
    r"PASSW|PASSPHRASE|PASSCODE|PASSKEY|SECRET|CREDENTIAL|SSHPASS|AUTHORIZATION|COOKIE|BEARER"
    r"|CONNECTIONSTRING|FROMLITERAL|MNEMONIC|SESSIONID"
    r"|(?:ACCESS|ACCOUNT|API|APP|AUTH|BOT|CLIENT|DEPLOY|ENCRYPTION|LICENSE|MASTER|PRIV|PRIVATE"
    r"|REFRESH|SECURITY|SERVICE|SESSION|SHARED|SIGNING|SSH|STORAGE)(?:KEY|TOKEN)"
)
_AT_END: Final = re.compile(
    r"(?P<of>.*?)(?:TOKEN|KEY|AUTH|SIGNATURE|PASS|PW|PWD|PSWD|CREDS?|JWT|DSN|CONNSTR|PINCODE|HMAC)"
    r"|AK|CVV|MFA|OTP|PAT|PIN|PSK|SALT|SAS|SID|SIG|SK|TOTP|(?P<several>TOKENS|KEYS)"
)
"""A last word, or the end of it."""
_WITHOUT_SECRET: Final = frozenset({"BYPASS", "COMPASS", "ENCOMPASS", "MONKEY", "SURPASS"})
_OF_DATA: Final = re.compile(
    r"ADDED|ANSWER|ASSISTANT|ATTENTION|AUDIO|BACKWARD|BATCH|BLANK|BOI|BOS|CACHE|CAPTION|CATEGORY"
    r"|CHOSEN|CLASS|CLS|COLUMN|COMMON|CONFIG|CONTENT|CORE|CPU|DATA|DATASET|DECODER|DICT|DOCUMENT"
    r"|DROP|ENCODER|END|EOD|EOI|EOS|EOT|EVAL|EXCLUDE|EXTRA|FEATURE|FEATURES|FIELD|FIRST|FOREIGN"
    r"|FORWARD|GENERATED|GPU|GROUP|HASH|IGNORE|IMAGE|IMG|INCLUDE|INDEX|INPUT|ITEM|JPG|JSON|KEEP"
    r"|LABEL|LAST|LATENT|LOSS|MASK|MAX|MESSAGE|MESSAGES|METRIC|MIDDLE|MIN|MONITOR|MULTI|NEW"
    r"|NEWLINE|NUM|ONE|OPTIONAL|OUTPUT|PAD|PADDING|PARTITION|PER|PLACEHOLDER|PNG|PREFIX|PRIMARY"
    r"|PROMPT|QUERY|RANK|REJECTED|REQUIRED|RESPONSE|SAMPLE|SEP|SEPARATOR|SEQUENCE|SHARD|SINGLE"
    r"|SORT|SOURCE|SPECIAL|SPEECH|STAGE|START|STATE|STOP|SUFFIX|TARGET|TEXT|THINK|TITLE|TOOL"
    r"|TOTAL|TRAIN|TWO|UNIQUE|UNK|URL|USE|VALUE|VIDEO|VISION|VISUAL|VOCAB|WARMUP"
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
    if names_secret(name[-_MAX_NAME:]):
        return may_be_shown is None or not may_be_shown(name)
    return (
        may_be_shown is not None
        and (value is None or not _NUMBER.fullmatch(value))
        and not may_be_shown(name)
    )


@lru_cache(maxsize=4096)
def names_secret(name: str) -> bool:
    """Say whether a name is one of secrets."""
    words = _words(name)
    joined = "".join(words)
    if "WEBHOOK" in joined:
        return True  # its address is the secret
    if not words or _ABOUT.fullmatch(words[-1]) or name in ("PWD", "OLDPWD"):
        return False
    if _ANYWHERE.search(joined):
        return True
    # The last word says what a thing is, or the one before what it is for.
    cut = next((at for at, word in enumerate(words) if at and word in _PREPOSITION), len(words))
    if _ends_as_secret(words) or _ends_as_secret(words[:cut]):
        return True
    # "ToKeN" has no words; "maxTokens" has, and they have been asked.
    return not _AT_END.fullmatch(words[-1]) and _ends_as_secret(_words(name.lower()))


def _words(name: str) -> list[str]:
    return [word.upper() for word in _WORD.findall(name)]


def _ends_as_secret(words: list[str]) -> bool:
    end = len(words)
    while end > 1 and _BEHIND.fullmatch(words[end - 1]):
        end -= 1
    last, before = words[end - 1], "".join(words[max(end - 2, 0) : end - 1])
    found = _AT_END.fullmatch(last)
    if found is None or last in _WITHOUT_SECRET or (found["several"] and not before):
        return False
    return not _OF_DATA.fullmatch(found["of"] or before)
