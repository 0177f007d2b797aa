"""What Kubernetes takes as a name, a label or a quantity.

The rules are those of ``k8s.io/apimachinery`` (``pkg/util/validation``, ``pkg/api/resource``): the
API server would refuse the run, and only once it has been planned.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.files.shapes import MapOf, Scalar, Shape, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.files.yamlfile import YamlValue

_DNS_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_NAME: Final = rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*"
_LABEL: Final = "[A-Za-z0-9](?:[-_.A-Za-z0-9]*[A-Za-z0-9])?"
_QUALIFIED: Final = f"(?:(?=[^/]{{1,253}}/){_DNS_NAME}/)?(?=[^/]{{1,63}}$){_LABEL}"
_PATH_PART: Final = "[a-z0-9]+(?:(?:[.]|_{1,2}|-+)[a-z0-9]+)*"
_AMOUNT: Final = r"(?:[0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
_QUANTITY: Final = rf"{_AMOUNT}(?:[KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{{1,2}})?"
# No finer than a thousandth, of a core.
_CORES: Final = r"[0-9]{1,6}(?:\.[0-9]{0,3}0*)?|\.[0-9]{1,3}0*|[0-9]{1,9}m"
_DIGITS: Final = {"": 18, "(?:Ki|k)": 15, "Mi?": 12, "Gi?": 9, "Ti?": 6, "Pi?": 3, "Ei?": 1}
"""More overflow 63 bits."""
_BYTES: Final = "|".join(
    rf"(?:[0-9]{{1,{digits}}}(?:\.[0-9]{{0,9}})?|\.[0-9]{{1,9}}){suffix}"
    for suffix, digits in {**_DIGITS, r"[eE]\+?(?:[0-9]|1[0-5])": 3}.items()
)
_COUNT: Final = "[0-9]{1,18}k?"

NAMESPACE: Final = Text(
    "a namespace: up to 63 lower-case letters, digits and hyphens",
    pattern=rf"^(?=.{{1,63}}$){_DNS_LABEL}$",
)
OBJECT_NAME: Final = Text(
    "the name of an object: lower-case letters, digits, hyphens and dots",
    pattern=rf"^(?=.{{1,253}}$){_DNS_NAME}$",
)
QUEUE: Final = Text(
    "the name of a local queue: up to 63 lower-case letters, digits, hyphens and dots",
    pattern=rf"^(?=.{{1,63}}$){_DNS_NAME}$",  # it becomes a label
)
RESOURCE: Final = Text(
    "a resource such as nvidia.com/gpu", pattern=rf"^(?!kubernetes\.io/)(?=[^/]+/){_QUALIFIED}$"
)
IMAGE: Final = Text(
    "an image such as registry.example.org:5000/trainer:1.2",
    pattern=(
        rf"^(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{_PATH_PART}(?:/{_PATH_PART})*"
        r"(?::[A-Za-z0-9_][-.A-Za-z0-9_]{0,127})?(?:@[a-z0-9]+:[0-9a-f]{32,128})?$"
    ),
)


def _matching(allowed: str, pattern: str) -> Shape[str]:
    """Return the shape of scalars that match as a whole."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r} is not {allowed}")
        return text

    return Scalar(allowed).parsed(parse, pattern=f"^(?:{pattern})$")


MEMORY: Final = _matching("an amount of memory such as 16Gi or 500M", _BYTES)
NODE_SELECTOR: Final = MapOf(
    _matching(
        "a label's value: up to 63 letters, digits, '-', '_' and '.', beginning and ending with a "
        "letter or digit",
        f"(?=.{{0,63}}$)(?:{_LABEL})?",
    ),
    "a mapping of labels to their values",
    names=_QUALIFIED,
    refused="is not the key of a label, such as pool or example.org/pool",
)


def _resources(given: Mapping[str, str], place: YamlValue) -> dict[str, str] | None:
    """Check each amount by the kind of its resource."""
    for name, amount in place.entries():
        if "/" in name:
            pattern, allowed = _COUNT, "a whole number, as it counts devices"
        elif name == "cpu":
            pattern, allowed = _CORES, "an amount of cores such as 96 or 500m"
        else:
            pattern, allowed = _BYTES, MEMORY.allowed
        if not re.fullmatch(pattern, amount.scalar):
            amount.fault(f"{amount.scalar!r} is not {allowed}")
    return dict(given)


RESOURCES: Final[Shape[Any]] = MapOf(
    _matching("a quantity such as 96, 500m or 16Gi", _QUANTITY),
    "a mapping of resources to quantities",
    names=rf"cpu|memory|ephemeral-storage|hugepages-[0-9]+[KMGT]i|(?=[^/]+/){_QUALIFIED}",
    refused="is not a resource: cpu, memory, ephemeral-storage, hugepages-2Mi, or one of a domain, "
    "such as rdma/hca",
).placed(_resources)
