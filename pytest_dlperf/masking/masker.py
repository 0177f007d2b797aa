"""Finds the secrets in commands and environments, and puts a mask in their place.

A secret is known by the name before it (``--hf-token …``, ``X-Api-Key: …``), by its place
(``mysql -p…``, ``wandb login …``, the password in an address) or by its own form: gitleaks' rules,
which maskerlogger carries. In doubt it is one. No character is looked at more often than a fixed
number of times, so that the time grows with the length of a text.
"""

from __future__ import annotations

import re
import shlex
from ast import literal_eval
from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_dlperf.masking.secret_names import is_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Mask = Callable[[str], str]
    """Gives what stands in the place of a secret."""

MASK: Final = "***"

_NAME: Final = r"(?<![\w.-])(?P<name>[\w.-]+)"
_SET: Final = re.compile(_NAME + r"[\"']?\]?[:+]?=")
_STATED: Final = re.compile(
    _NAME + r"(?:\\?[\"']?\s{0,9}:(?!//)[-=+?]?|[\"']?\]?\s{1,9}[:+]?=)[ \t]{0,9}"
)
# As a list of arguments in JSON, or a call in Python, has them.
_LISTED: Final = re.compile(
    r"(?<![\w.-])(?P<name>(?:-|(?<=\([\"']))[\w.-]+)\\?[\"']\s{0,9},\s{0,9}(?=\\?[\"'])"
)
# As a manifest of Kubernetes has them, in YAML or JSON.
_PAIR: Final = re.compile(
    r"\bname[\"']?:\s{0,99}[\"']?(?P<name>[\w.-]{1,99})[\"']?,?\s{1,99}[\"']?value[\"']?:[ \t]{0,9}"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"',}][^\n,}]*)"
)
# As XML has them.
_ELEMENT: Final = re.compile(r"<(?P<name>[\w.-]{1,99})>(?P<value>[^<]{1,2048})</")
_TO_NEXT_NAME: Final = re.compile(r".*?(?=[,;&][A-Za-z_][\w.-]{0,99}=|\Z)", re.DOTALL)
_IN_QUOTES: Final = re.compile(
    # A list; a block or a list of YAML, which end with their indentation.
    r"\[[^\]]*\]?|[|>][-+0-9]{0,2}\n(?P<indent>[ \t]+)[^\n]*(?:\n(?P=indent)[^\n]*)*"
    r"|(?:\n[ \t]*-[ \t][^\n]*)+|"
    r"\\\"(?:[^\"\\]|\\[^\"])*(?:\\\")?|\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[^\"'\\\n]+",
    re.DOTALL,
)
_MOUNTED: Final = re.compile(r"/|r[ow]\b")
_REST: Final = re.compile(r".*", re.DOTALL)
_TOKEN: Final = re.compile(
    # A quote that is left open goes on to the end.
    r"(?P<word>(?:\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)|'[^']*(?:'|\Z)|\\[^\n]|[^\s;&|<>()\"'\\])+)"
    r"|(?P<end>[;&|\n]+)|(?P<input><<<)|\\\n",
    re.DOTALL,
)
_PLACES: Final = (
    # A password before a host, or the whole of what stands there; a port is none.
    re.compile(r"(?<=//)[^\s/?#'\"@:]{0,256}:(?P<secret>(?!\d+(?:[/,]|\Z))[^\s'\"]{0,2048})@"),
    re.compile(r"(?:(?<=tps://)|(?<=ttp://))(?P<secret>[^\s/'\"@:]{1,2048})@"),
    re.compile(
        r"(?<![\w/@.:+-])[\w.+-]{1,64}:(?P<secret>(?!\d+@)[^\s/'\"]{1,256})@(?!sha\d+:|\d+(?:\s|\Z))"
    ),
    # Who knows the path of a webhook may write there.
    re.compile(
        r"(?<=://)(?:hooks\.|(?:\w[\w-]{0,63}\.){0,5}webhook|api\.telegram\.|hc-ping\.|ntfy\.)"
        r"[^\s/'\"]{0,256}/(?P<secret>[^\s'\"]+)"
    ),
    re.compile(r"(?<=://)[^\s'\"]{0,256}?/(?:web)?hooks?\w{0,9}/(?P<secret>[^\s'\"]+)"),
    # So does Apprise, by addresses of its own.
    re.compile(
        r"\b(?:dingtalk|discord|feishu|gchat|gotifys?|lark|line|mmosts?|msteams|ntfys?|opsgenie"
        r"|pagerduty|pbul|pover|rockets?|slack|tgram|twilio|webex|wecombot|workflows|zulip)"
        r"://(?P<secret>[^\s'\"]+)"
    ),
    re.compile(r"\blogin\(\s{0,9}(?P<secret>[\"'][^)\n]{1,2048})\)"),
    re.compile(r"\b(?:bearer|basic)\s+(?P<secret>[\w.~+/=-]{6,})", re.IGNORECASE),
    # As random characters look, but neither as a checksum nor as a name in camel case.
    re.compile(
        r"(?<![A-Za-z0-9])(?P<secret>(?=(?:[A-Za-z]{0,99}[0-9]){3})(?=(?:[A-Z0-9]{0,99}[a-z]){3})"
        r"(?=(?:[a-z0-9]{0,99}[A-Z]){3})[A-Za-z0-9]{24,})"
    ),
)
_LINE: Final = re.compile(r"(?:[^\n]*\\\n)*[^\n]+")
_HAS_QUOTE: Final = re.compile(r"[\"'\\]")
_LIST: Final = re.compile(
    r"\[(?:(?:'(?:[^'\\]|\\.){0,2000}'|\"(?:[^\"\\]|\\.){0,2000}\")(?:, ?|(?=\]))){1,200}\]"
)
_NAMED_NUMBER: Final = re.compile(
    r"(?<![\w.-])[\w.-]{1,99}[\"']?\s?[:=]\s?[-+]?[0-9]{1,6}(?:\.[0-9]{1,9})?(?=[\s,;)}\]]|\Z)"
)
_MIN_LENGTH: Final = 4
"""A shorter secret of a quoted command would be found everywhere."""
_WINDOW: Final = 8192
_OVERLAP: Final = 4096
"""Characters that a secret may have: a private key of 4096 bits has fewer."""
_MAX_DEPTH: Final = 8
"""So deep may scripts stand in quotes of scripts."""

_OPTION: Final = re.compile(r"-[^=]*")
_SHORT_OPTION: Final = re.compile(r"-.|--.*", re.DOTALL)
_VARIABLE: Final = re.compile(r"(?:-[ex])?([A-Z][A-Z0-9_]+)")
"""What is set by such a name is a variable, not an option."""
_SEVERAL: Final = re.compile(r"-.*(?:key|token|password|secret)s", re.IGNORECASE)
"""Options that may have several values."""
_SETS_NEXT: Final = frozenset(("-genv", "-env", "setenv", "set", "config", "--global", "--local"))
"""Name and value follow."""
_HANDS_ON: Final = frozenset(("-e", "--env", "-x"))
"""The name of a variable follows, maybe with a value."""
_BARE_NAME: Final = re.compile(r"(?=\w*?[._-]|passw|passphrase)[a-z_][\w.-]*", re.IGNORECASE)
_USER: Final = re.compile(
    r"(?:-E|-[fgijkLnNOqRsSvV46#]{0,9}[uU]|--(?:[\w-]{1,99}-)?(?:user|login|cert))=?"
)
_PASSWORD_OF_USER: Final = re.compile(r"[^:%]*[:%](?P<secret>(?![0-9]{1,9}\Z).+)", re.DOTALL)
_ATTACHED_USER: Final = re.compile(
    r"-[fgijkLnNOqRsSvV46#]{0,9}[uU](?=[^:%]+[:%])|--(?:[\w-]{1,99}-)?user=(?=[^:%]+[:%])"
)
_SCRIPT_FOLLOWS: Final = re.compile(r"-[a-z]*c")
_TAKES_INPUT: Final = re.compile(
    r"stdin|--with-token|sudo\s+-\w*S|passwd|=\$\((?:echo|printf)"
    r"|>\s{0,9}[^\s;&|<>]{0,200}(?:token|key|netrc|secret|credential)"
)
_PRINTS: Final = ("echo", "printf", "yes")
_NO_SECRET_WORD: Final = re.compile(r"-.*|.*://.*|[0-9.:]*|\W*", re.DOTALL)
_SECRETS_FOLLOW: Final = re.compile(
    # What follows the ``login`` of these is a host.
    r"(?!apptainer|docker|helm|nerdctl|oras|podman|remote|singularity|skopeo)[^- ].* login"
    # Arguments of these are passwords, and names of users.
    r"|alias set|.* (?:htpasswd|mkpasswd|passwd|wpa_passphrase)"
)
"""Two words, after which all others are secrets, but for options and addresses."""
_PASSWORD_OPTION: Final = (
    (re.compile(r"(?:mysql|mariadb|mongo)\w*|login|sshpass|twine|7z\w?|rar|unrar"), "-p"),
    (re.compile(r"unzip|zip|ipmitool|sqlcmd|bcp|isql|tsql"), "-P"),
    (re.compile(r"ldap\w+"), "-w"),
    (re.compile(r"redis-cli|https?|xh"), "-a"),
    (re.compile(r"openssl"), "-k"),
    (re.compile(r"ssh-keygen"), "-N"),
    (re.compile(r"curl"), "-b"),
    (re.compile(r"lftp"), "-u"),
    (re.compile(r"\w+freerdp3?"), "/p"),
)
"""The option of a program or subcommand that takes a password, before a blank or at once."""


class Masker(NamedTuple):
    """Masks what is a secret.

    ``mask`` gives what is shown for one. With ``may_be_shown`` all variables are secrets but those
    of a name that it allows, and numbers and truth values. ``known`` are secrets wherever they
    stand in what a program prints.
    """

    mask: Mask = lambda _: MASK
    may_be_shown: Callable[[str], bool] | None = None
    known: frozenset[str] = frozenset()

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Mask the secrets among the values of variables."""
        return {name: self.variable(name, value) for name, value in environment.items()}

    def variable(self, name: str, value: str) -> str:
        """Mask the value of a variable, or the secrets in it."""
        if is_secret(name, value, self.may_be_shown):
            return self.mask(value)
        return self.script(value)

    def arguments(self, arguments: Sequence[str]) -> list[str]:
        """Mask the secrets in a command: their number and all other arguments stay."""
        line = _Line(self.may_be_shown)
        return [self._without(argument, _of_argument(argument, line, 0)) for argument in arguments]

    def script(self, text: str) -> str:
        """Mask the secrets in a command line as a shell takes it, or in any other text."""
        return self._without(text, _of_script(text, self.may_be_shown, 0))

    def output(self, text: str) -> str:
        """Mask the secrets in what a program has printed, also in commands that it quotes.

        Numbers of few digits stay: logs are full of them.
        """
        text = self.without_known(
            text, *(one for command in _quoted_commands(text) for one in self.secrets_of(command))
        )
        spans = (
            _Span(line.start() + span.begin, line.start() + span.end)
            # A quote that one line leaves open is no other line's.
            for line in _LINE.finditer(text)
            for span in _of_script(_without_numbers(line[0]), self.may_be_shown, 0)
        )
        return self._without(text, spans)

    def without_known(self, text: str, *more: str) -> str:
        """Mask no secrets but those that are known."""
        secrets = self.known.union(more)
        escaped = {secret.replace("\\", "\\\\") for secret in secrets}
        for secret in sorted(secrets | escaped, key=len, reverse=True):
            text = text.replace(secret, self.mask(secret))
        return text

    def secrets_of(self, command: Sequence[str]) -> Iterator[str]:
        """Yield the secrets of a command, but for short ones."""
        line = _Line(self.may_be_shown)
        for argument in map(_without_numbers, command):
            found = (*_of_argument(argument, line, 0), *_by_form(argument))
            secrets = (argument[slice(*span)].strip("\"'\\ ,;") for span in _joined(found))
            yield from (secret for secret in secrets if len(secret) >= _MIN_LENGTH)

    def _without(self, text: str, found: Iterable[_Span]) -> str:
        """Put the mask into the places, which may overlap."""
        pieces = []
        at = 0
        for begin, end in _joined(chain(found, _by_form(text))):
            pieces += [text[at:begin], self.mask(text[begin:end])]
            at = end
        return "".join([*pieces, text[at:]])


MASKER: Final = Masker()
"""Masks for what stays private, or is shown to the user alone."""


class _Span(NamedTuple):
    begin: int
    end: int


def _without_numbers(text: str) -> str:
    """Put blanks in the place of numbers, and of the names before them."""
    return _NAMED_NUMBER.sub(lambda found: " " * len(found[0]), text)


def _quoted_commands(text: str) -> Iterator[list[str]]:
    """Yield commands as a shell or Python quotes them: in lines, and in lists of arguments."""
    for line in filter(_HAS_QUOTE.search, _LINE.findall(text)):
        with suppress(ValueError):
            yield shlex.split(line)
    for arguments in _LIST.finditer(text):
        with suppress(ValueError, SyntaxError):
            yield literal_eval(arguments[0])


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    joined: list[_Span] = []
    for begin, end in sorted(spans):
        if joined and begin < joined[-1].end:
            joined[-1] = _Span(joined[-1].begin, max(end, joined[-1].end))
        elif begin < end:
            joined.append(_Span(begin, end))
    return joined


# ------------------------------------------------------------------------- word by word


class _Line:
    """A command line, read word by word: what is a secret because of the words before it."""

    def __init__(self, may_be_shown: Callable[[str], bool] | None, *, feeds: bool = False) -> None:
        """Begin a line; ``feeds`` says that one of its programs reads a secret from its input."""
        self.may_be_shown = may_be_shown
        self._feeds = feeds
        self.end()

    def end(self) -> None:
        """Begin another command."""
        self._earlier = self.before = ""
        self._options: set[str] = set()
        self.is_given = False
        """Whether its words are secrets, but for options and addresses."""

    def secret_of(self, word: str) -> _Span | None:
        """Take the next word, and return the part of it that is a secret."""
        earlier, before = self._earlier, self.before
        self._earlier, self.before = before, word
        whole = _Span(0, len(word))
        is_given = self.is_given and not _NO_SECRET_WORD.fullmatch(word)
        if is_given or self._is_named(earlier, before, word):
            if _SEVERAL.fullmatch(before):
                self._earlier = self.before = before
            return whole
        password = _USER.fullmatch(before) and _PASSWORD_OF_USER.fullmatch(word)
        if not password and (attached := _ATTACHED_USER.match(word)):
            password = _PASSWORD_OF_USER.fullmatch(word, attached.end())
        if password:
            return _Span(*password.span("secret"))
        if before in self._options and not _SHORT_OPTION.fullmatch(word):
            return whole
        if word[:2] in self._options and len(word) > 2 and not word.startswith("--"):  # noqa: PLR2004
            return _Span(2, len(word))
        self._note(before, word)
        return None

    def _is_named(self, earlier: str, before: str, word: str) -> bool:
        """Say whether an option or a name before the word tells that it is a secret."""
        if _OPTION.fullmatch(before):
            # In doubt an option is masked: a secret may begin with a dash.
            return not word.startswith("--"[earlier == before :]) and is_secret(before, word)
        if earlier in _SETS_NEXT:
            return is_secret(before, word, self.may_be_shown)
        # Some programs take names and values in turn, others the name of a variable to hand on.
        is_name = _BARE_NAME.fullmatch(before) and earlier not in _HANDS_ON
        return bool(is_name) and not word.startswith("-") and is_secret(before, word)

    def _note(self, before: str, word: str) -> None:
        first, program = (re.split(r"[/=]", one)[-1].lower() for one in (before, word))
        prints = self._feeds and program in _PRINTS
        self.is_given |= prints or bool(_SECRETS_FOLLOW.fullmatch(f"{first} {program}"))
        self._options.update(
            option for programs, option in _PASSWORD_OPTION if programs.fullmatch(program)
        )


def _of_argument(text: str, line: _Line, depth: int) -> tuple[_Span, ...]:
    """Find the secrets in the next argument of a command."""
    is_script = depth < _MAX_DEPTH and bool(_SCRIPT_FOLLOWS.fullmatch(line.before))
    by_place = line.secret_of(text)
    found = () if by_place is None else (by_place,)
    if is_script:
        return (*found, *_of_script(text, line.may_be_shown, depth + 1))
    return (*found, *_of_text(text, line.may_be_shown, depth))


@lru_cache(maxsize=1024)
def _of_script(
    text: str, may_be_shown: Callable[[str], bool] | None, depth: int
) -> tuple[_Span, ...]:
    """Find the secrets in what a shell reads; the commands of many nodes have much in common."""
    return (*_stated(text, is_header=False), *_of_words(text, may_be_shown, depth))


@lru_cache(maxsize=1024)
def _of_text(
    text: str, may_be_shown: Callable[[str], bool] | None, depth: int
) -> tuple[_Span, ...]:
    """Find the secrets in an argument that need not be a script, and may be one."""
    found = (*_stated(text, is_header=True), *_set(text, may_be_shown))
    has_words = depth < _MAX_DEPTH and bool(re.search(r"\s", text))
    return (*found, *_of_words(text, may_be_shown, depth + 1)) if has_words else found


def _of_words(text: str, may_be_shown: Callable[[str], bool] | None, depth: int) -> Iterator[_Span]:
    line = _Line(may_be_shown, feeds=bool(_TAKES_INPUT.search(text)))
    for token in _TOKEN.finditer(text):
        if token["end"]:
            line.end()
        elif token["input"]:
            line.is_given = True
        elif token["word"]:
            begin, end = token.span()
            quote = text[begin]
            if quote in "\"'":
                begin, end = begin + 1, end - (end - begin > 1 and text[end - 1] == quote)
            word = text[begin:end]
            # What is in no quotes has no blank: it is no script.
            inner = depth + 1 if quote in "\"'" else _MAX_DEPTH
            for span in _of_argument(word, line, inner):
                yield _Span(begin + span.begin, begin + span.end)


# ----------------------------------------------------------------------- place by place


def _set(text: str, may_be_shown: Callable[[str], bool] | None) -> Iterator[_Span]:
    """Yield where values of secrets stand behind ``name=``."""
    begin = 0
    while found := _SET.search(text, begin):
        begin = found.end()
        variable = _VARIABLE.fullmatch(found["name"])
        name, shown = (variable[1], may_be_shown) if variable else (found["name"], None)
        # Whether the name is one is asked first: each value is then looked at once.
        if is_secret(name, None, shown):
            value = _value(_TO_NEXT_NAME, text, begin)
            begin = value.end
            if is_secret(name, text[slice(*value)].strip("\"'\\"), shown):
                yield value


def _stated(text: str, *, is_header: bool) -> Iterator[_Span]:
    """Yield where values of secrets stand behind ``name:``, in YAML, JSON and headers."""
    for form in (_STATED, _LISTED):
        yield from _behind(form, text, is_header=is_header)
    for pair in chain(_PAIR.finditer(text), _ELEMENT.finditer(text)):
        if is_secret(pair["name"], pair["value"].strip("\"'")):
            yield _Span(*pair.span("value"))


def _behind(form: re.Pattern[str], text: str, *, is_header: bool) -> Iterator[_Span]:
    begin = 0
    while found := form.search(text, begin):
        begin = found.end()
        is_path = text[found.start() - 1 : found.start()] == "/" and _MOUNTED.match(text, begin)
        if is_secret(found["name"], None) and not is_path:
            whole = is_header and not found.start()
            value = _value(_REST if whole else _IN_QUOTES, text, begin)
            begin = value.end
            if is_secret(found["name"], text[slice(*value)].strip("\"'\\ ,;")):
                yield value


def _value(form: re.Pattern[str], text: str, begin: int) -> _Span:
    """Return where a value stands, without the quotes around it."""
    found = form.match(text, begin)
    if found is None:
        return _Span(begin, begin)
    quotes = len(found[0]) > 1 and found[0][0] == found[0][-1] and found[0][0] in "\"'"
    return _Span(begin + quotes, found.end() - quotes)


@lru_cache(maxsize=8192)
def _by_form(text: str) -> tuple[_Span, ...]:
    """Find what is a secret by its own form, or the form of what is around."""
    places = (found.span("secret") for form in _PLACES for found in form.finditer(text))
    return tuple(chain(map(_Span._make, places), _found_by_rules(text)))


def _found_by_rules(text: str) -> Iterator[_Span]:
    from maskerlogger.utils import TimeoutException

    rules, by_name = _rules()
    # The time that some rules take grows with the square of the length.
    for begin in range(0, max(len(text) - _OVERLAP, 1), _WINDOW - _OVERLAP):
        try:
            matches = rules(text[begin : begin + _WINDOW]) or ()
        except TimeoutException:
            yield _Span(begin, begin + _WINDOW)  # in doubt
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
