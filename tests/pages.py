"""Pages read strictly, as no browser does."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "input", "br", "link", "img", "hr"}


class Element:
    """One element of a page, with all text below it."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())


class Page(HTMLParser):
    """A page read strictly: each element is closed, in its order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(text)
        self.close()
        assert not self._open, [element.name for element in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag} has an attribute twice: {names}"
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(self.elements[-1])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop().name == tag
        if tag in {"td", "th", "span", "dt", "dd", "li"}:
            self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.pieces.append(data)

    def all(self, name: str, **wanted: str) -> list[Element]:
        return [
            element
            for element in self.elements
            if element.name == name
            and all(
                value in element.attributes.get(key.rstrip("_").replace("_", "-"), "").split()
                for key, value in wanted.items()
            )
        ]

    def one(self, name: str, **wanted: str) -> Element:
        [element] = self.all(name, **wanted)
        return element

    def case(self, case_id: str) -> Element:
        return self.one("details", id=f"case-{case_id}")

    def row(self, case_id: str) -> str:
        [row] = [row.text for row in self.all("tr", class_="row") if f" {case_id} " in row.text]
        return row
