"""What a record or a terminal shows of commands and environments: all but their secrets.

A name says that its value is one (``HF_TOKEN=…``, ``--password …``, ``X-Api-Key: …``), or the value
itself does: by gitleaks' rules, which maskerlogger carries, or as the password in an address. In
doubt, what people need for debugging is shown where a name speaks of data: ``--pad-token``.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MASK: Final = "***"

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# In what is left of a name without what separates its words.
_SECRET: Final = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|SSHPASS|AUTHORIZATION|COOKIE|CONNECTIONSTRING"
    r"|(?:ACCESS|ACCOUNT|API|AUTH|CLIENT|DEPLOY|ENCRYPTION|LICENSE|PRIVATE|REFRESH|SECURITY|SERVICE"
    r"|SESSION|SHARED|SIGNING|SSH|STORAGE)(?:KEY|TOKEN)"
)
_ALWAYS: Final = frozenset({"CREDS", "DSN", "JWT", "PASS", "PWD"})
# Beside a trainer's options these are tokens of a text and keys of a sample.
_AMBIGUOUS: Final = frozenset({"AUTH", "KEY", "PAT", "SIG", "SIGNATURE", "TOKEN"})
_ABOUT_SECRETS: Final = re.compile(
    r"ALGORITHM|COLUMN|COUNT|DIR|DIRECTORY|ENABLED|ENDPOINT|FIELD|FILE|FOLDER|FORMAT|HOST|LENGTH|LIMIT"
    r"|METHOD|MODE|NAME|PATH|POLICY|PORT|SIZE|SOCK|TIMEOUT|TTL|TYPE|URL|USER|USERNAME"
)
"""Last words of names whose values tell something about a secret, and are none."""

_NO_SECRET: Final = re.compile(r"(?:true|false|yes|no|on|off|none|null|auto|\W*)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[-+]?[0-9]{1,9}(?:\.[0-9]*)?")
_RANDOM: Final = re.compile(r"(?=(?:.*[0-9]){3})(?=.*[A-Za-z])[\w+/=.-]{20,}")

_GIVEN: Final = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]+)(?P<sign>=|\\?[\"']?\s{0,9}:(?!//)\s{0,9}|(?<=\w)\s+)"
)
# As a manifest of Kubernetes has them, in YAML or JSON.
_PAIR: Final = re.compile(
    r"\bname[\"']?:\s{0,99}[\"']?(?P<name>[\w.-]{1,99})[\"']?,?\s{1,99}[\"']?value[\"']?:[ \t]{0,9}"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"',}][^\n,}]*)"
)
_TO_NEXT_NAME: Final = re.compile(r".*?(?=[,;&][A-Za-z_][\w.-]{0,99}=|\Z)", re.DOTALL)
_SHELL_WORD: Final = re.compile(
    # A quote that is left open goes on to the end.
    r"(?:\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)|'[^']*(?:'|\Z)|\\.|[^\s;&|<>()\"'])+",
    re.DOTALL,
)
_IN_QUOTES: Final = re.compile(
    r"\\\"(?:[^\"\\]|\\[^\"])*(?:\\\")?|\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[^\"'\\\n]+", re.DOTALL
)
_REST: Final = re.compile(r".*", re.DOTALL)
_IN_ADDRESS: Final = re.compile(
    r"(?<=://)(?:([^\s/?#'\"@:]*):[^\s/'\"]*|(?<=tps://)[^\s/?#'\"@:]+)@"
)
_SCHEME: Final = re.compile(r"\b((?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
_WINDOW: Final = 8192
_OVERLAP: Final = 4096
"""Characters that a secret may have: a private key of 4096 bits has fewer."""
_SET_NEXT: Final = ("-genv", "-env", "setenv")
"""Name and value follow, as Hydra's mpirun takes them."""
_THEN_SECRET: Final = (("sshpass", "-p"), ("wandb", "login"))
_SCRIPT_FOLLOWS: Final = re.compile(r"-[a-z]*c")


def masked_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Mask the secrets among the values of variables."""
    return {
        name: MASK if _is_secret(name, value) else masked_script(value)
        for name, value in environment.items()
    }


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Mask the secrets in a command: their number and all other arguments stay."""
    masked = []
    earlier = before = ""
    for argument in arguments:
        if _takes_secret(earlier, before, argument):
            masked.append(MASK)
        elif _SCRIPT_FOLLOWS.fullmatch(before):
            masked.append(masked_script(argument))
        else:
            masked.append(_masked(argument, is_script=False))
        earlier, before = before, argument
    return masked


def masked_script(text: str) -> str:
    """Mask the secrets in a command line as a shell takes it, or in any other text."""
    return _masked(text, is_script=True)


@lru_cache(maxsize=1024)
def _masked(text: str, *, is_script: bool) -> str:
    """Mask a text; the commands of a thousand nodes consist of much the same ones."""
    text = _IN_ADDRESS.sub(lambda found: f"{found[1]}:{MASK}@" if found[1] else f"{MASK}@", text)
    text = _without(text, chain(_named(text, is_script=is_script), _paired(text)))
    text = _SCHEME.sub(rf"\1{MASK}", text)
    return _without(text, _found_by_rules(text))


def _takes_secret(earlier: str, before: str, argument: str) -> bool:
    """Say whether an argument is a secret by the command, or the two arguments, before it."""
    is_given = before.startswith("-") and "=" not in before
    # An option too many is masked sooner than a secret that begins with a dash is shown.
    is_value = (is_given and not argument.startswith("--")) or earlier in _SET_NEXT
    is_named = (earlier.rpartition("/")[2], before) in _THEN_SECRET and argument[:1] != "-"
    return is_named or (is_value and _is_secret(before, argument))


def _is_secret(name: str, value: str) -> bool:
    """Say whether the name, and where it is ambiguous the value, tell of a secret."""
    words = [word.upper() for word in _WORD.findall(name)]
    if not words or _ABOUT_SECRETS.fullmatch(words[-1]) or _NO_SECRET.fullmatch(value):
        return False
    if _SECRET.search("".join(words)):
        return True
    if _NUMBER.fullmatch(value) or name == "PWD":
        return False
    if name.isupper():
        # A variable of the environment.
        return not (_ALWAYS | _AMBIGUOUS).isdisjoint(words)
    if words[-1] in _AMBIGUOUS:
        return words in (["TOKEN"], ["AUTH"], ["SIG"]) or bool(_RANDOM.fullmatch(value))
    return words[-1] in _ALWAYS


# ---------------------------------------------------------------------- places in a text


class _Span(NamedTuple):
    begin: int
    end: int


def _named(text: str, *, is_script: bool) -> Iterator[_Span]:
    """Yield where values of secrets' names stand."""
    end = 0
    for found in _GIVEN.finditer(text):
        if found.start() < end:
            continue
        name, sign = found["name"], found["sign"]
        if sign.isspace() and not (is_script and name.startswith("-")):
            continue
        if ":" in sign:
            is_header = not is_script and not found.start()
            form = _REST if is_header else _IN_QUOTES
        else:
            form = _SHELL_WORD if is_script else _TO_NEXT_NAME
        value = form.match(text, found.end())
        if value is not None and _is_secret(name, value[0].strip("\"'")):
            end = value.end()
            is_quoted = len(value[0]) > 1 and value[0][0] == value[0][-1] and value[0][0] in "\"'"
            yield _Span(value.start() + is_quoted, end - is_quoted)


def _paired(text: str) -> Iterator[_Span]:
    """Yield where values of secrets stand that have their names as ``name`` before them."""
    for found in _PAIR.finditer(text):
        if _is_secret(found["name"], found["value"].strip("\"'")):
            yield _Span(*found.span("value"))


def _found_by_rules(text: str) -> Iterator[_Span]:
    """Yield where gitleaks' rules find a secret by its own form, or the form of what is around."""
    from maskerlogger.utils import TimeoutException

    rules, by_name = _rules()
    # The time that some rules take grows with the square of the length.
    for begin in range(0, max(len(text) - _OVERLAP, 1), _WINDOW - _OVERLAP):
        try:
            matches = rules(text[begin : begin + _WINDOW]) or ()
        except TimeoutException:
            # Nobody writes such a command by hand, and nobody knows what is in it.
            yield _Span(begin, begin + _WINDOW)
            continue
        for match in matches:
            if match.re not in by_name:
                spans = [match.span(group) for group in range(1, match.re.groups + 1)]
                found = [span for span in spans if span[0] < span[1]] or [match.span()]
                yield from (_Span(begin + start, begin + end) for start, end in found)


@cache
def _rules() -> tuple[Callable[[str], list[re.Match[str]] | None], frozenset[Any]]:
    """Read the rules, once; with those that take any value of a name, which are told apart here."""
    from maskerlogger.ahocorasick_regex_match import RegexMatcher
    from maskerlogger.masker_formatter import DEFAULT_SECRETS_CONFIG_PATH

    find = RegexMatcher(DEFAULT_SECRETS_CONFIG_PATH).match_regex_to_line
    probes = ("api_key=one-of-the-columns", "password: 'one-of-the-columns'")
    by_name = chain.from_iterable(find(probe) or () for probe in probes)
    return find, frozenset(match.re for match in by_name)


def _without(text: str, spans: Iterator[_Span]) -> str:
    """Put the mask into the places, which may overlap."""
    pieces = []
    at = 0
    for begin, end in sorted(spans):
        if begin >= at:
            pieces += [text[at:begin], MASK]
        at = max(at, end)
    return "".join([*pieces, text[at:]])
