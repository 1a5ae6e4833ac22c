"""`make serve` and `make publish-check`: the built site as it will be published, under a sub-path.

The check asks the server for each page, follows every link and anchor within the site, and looks
for what a published page must have. Only the standard library is needed.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import urlopen

SITE = Path(__file__).resolve().parents[1] / "book/_build/html"


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder under `/prefix/` and the site's own page for every miss, as GitHub does."""

    def __init__(self, *arguments: object, folder: Path, prefix: str) -> None:
        self.folder, self.prefix = folder, prefix
        super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]  # whatever the server hands on

    def translate_path(self, path: str) -> str:
        if not path.startswith(self.prefix):
            return str(self.folder / "not-on-this-site")
        return super().translate_path("/" + path.removeprefix(self.prefix))

    def send_error(self, code: int, *arguments: object, **options: object) -> None:
        body = (self.folder / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


def prefix_of(folder: Path) -> str:
    """The path under which the site will stand, from its sitemap."""
    (first, *_) = re.findall(r"<loc>(.*?)</loc>", (folder / "sitemap.xml").read_text())
    return urlsplit(first).path.rsplit("/", 1)[0] + "/"


@contextmanager
def serving(folder: Path = SITE, port: int = 0) -> Iterator[str]:
    """Serve the site; gives the address of its first page."""
    prefix = prefix_of(folder)
    handler = partial(Handler, folder=folder, prefix=prefix)
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}{prefix}"
    server.shutdown()
    server.server_close()


@dataclass
class Seen(HTMLParser):
    """What a page refers to, and what of it can be referred to."""

    links: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    title: str = ""
    description: str = ""
    inside: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.inside = tag
        if "id" in given:
            self.ids.append(given["id"])
        for name in ("href", "src"):
            if name in given:
                self.links.append(given[name])
        decoration = given.get("alt") == "" and given.get("src", "").endswith("icon.svg")
        if tag == "img" and len(given.get("alt", "")) < 8 and not decoration:
            self.faults.append(f"no alt text: {given.get('src')}")
        if tag == "meta" and given.get("name") == "description":
            self.description = given["content"]

    def handle_data(self, data: str) -> None:
        if self.inside == "title":
            self.title += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


def pages(folder: Path = SITE) -> list[str]:
    """All pages of the site, by their paths."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    return sorted(path for path in found if not path.startswith("_static/"))


@cache
def read(address: str) -> tuple[int, str]:
    """Status and text of an address; the text of pages only."""
    try:
        with urlopen(address) as answer:
            body = answer.read()
            is_page = answer.headers.get_content_type() == "text/html"
            return answer.status, body.decode() if is_page else ""
    except HTTPError as error:
        return error.code, error.read().decode()


@cache
def see(address: str) -> Seen:
    seen = Seen()
    seen.feed(read(address)[1])
    return seen


def faults_of(address: str, start: str) -> Iterator[str]:
    """What is wrong with one page."""
    seen = see(address)
    yield from seen.faults
    if len(seen.title.strip()) < 4:
        yield "no title"
    if not 40 <= len(seen.description) <= 160:
        yield f"a description of {len(seen.description)} characters: {seen.description!r}"
    for doubled in {each for each in seen.ids if seen.ids.count(each) > 1}:
        yield f"the id {doubled!r} twice"
    for link in seen.links:
        if urlsplit(link).scheme not in ("", "http", "https"):
            continue
        target, anchor = urldefrag(urljoin(address, link))
        if not target.startswith(start):
            if urlsplit(target).netloc == urlsplit(start).netloc:
                yield f"a link out of the site's folder: {link}"
            continue
        status, text = read(target)
        if status != 200:
            yield f"a broken link: {link}"
        elif anchor and text and unquote(anchor) not in see(target).ids:
            yield f"a broken anchor: {link}"


def check(folder: Path = SITE) -> list[str]:
    """All that keeps the site from being published; nothing if it is fit."""
    with serving(folder) as start:
        faults = [
            f"{page}: {fault}"
            for page in pages(folder)
            for fault in faults_of(start if page == "index.html" else start + page, start)
        ]
        described: dict[str, str] = {}
        for page in pages(folder):
            words = see(start + page).description
            if words in described:
                faults.append(f"{page}: the same description as {described[words]}")
            described[words] = page
        listed = re.findall(r"<loc>(.*?)</loc>", (folder / "sitemap.xml").read_text())
        for place in listed:
            path = urlsplit(place).path
            if read(urljoin(start, path))[0] != 200:
                faults.append(f"sitemap.xml: {place} is not there")
        status, text = read(start + "no/such/page.html")
        if status != 404 or "A miss" not in text:
            faults.append("404.html is not shown for a miss")
        read.cache_clear()
        see.cache_clear()
    return faults


def main(what: str) -> int:
    if not (SITE / "index.html").exists():
        print("There is no site yet: make book", file=sys.stderr)
        return 1
    if what == "serve":
        with serving(port=8000) as start:
            print(f"The site is on {start.replace('127.0.0.1', 'localhost')} (Ctrl+C ends it)")
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                return 0
    faults = check()
    print("\n".join(faults) or f"{len(pages())} pages, nothing wrong with them.")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
