"""The files of the page: small, complete, with the right checksums, and allowed by its content policy."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.serve.vendor import FOLDER, PACKAGES, digest

PAGE = FOLDER.parent
OWN = sorted(it for it in PAGE.iterdir() if it.is_file())


def test_each_library_is_the_one_that_is_named() -> None:
    rows = json.loads((FOLDER / "vendor.json").read_text(encoding="utf-8"))["files"]
    assert [(it["name"], it["version"], it["source"], it["licence"]) for it in rows] == [
        (package.name, package.version, source, package.licence) for package in PACKAGES for source in package.files
    ]
    for row in rows:
        assert digest((FOLDER / row["file"]).read_bytes()) == row["sha256"]
        assert len((FOLDER / row["licence_file"]).read_text(encoding="utf-8")) > 500
    kept = {name for row in rows for name in (row["file"], row["licence_file"])}
    assert {it.name for it in FOLDER.iterdir()} == {*kept, "vendor.json"}


def test_the_page_is_small() -> None:
    sizes = {it: it.stat().st_size for it in PAGE.rglob("*") if it.is_file()}
    assert sum(sizes.values()) < 200_000
    assert sum(sizes[it] for it in OWN if it.suffix == ".js") < 90_000
    assert sizes[PAGE / "app.js"] < 60_000


def test_the_page_has_nothing_that_its_policy_forbids() -> None:
    for file in OWN:
        text = file.read_text(encoding="utf-8")
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacent|\beval\(|new Function|dangerously|https?://(?!www\.w3\.org)", text
        )
        assert not found, file
        if file.suffix in (".html", ".js"):
            assert not re.findall(r"\sstyle=[\"']|\son[a-z]+=[\"']", text), file
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\ssrc=)|<style", html) == []


def test_each_import_is_of_a_file_that_is_there() -> None:
    for file in [*OWN, *FOLDER.glob("*.js")]:
        if file.suffix == ".js":
            for name in re.findall(r"""\bfrom\s*["']([^"']+)["']""", file.read_text(encoding="utf-8")):
                assert (file.parent / name).is_file(), f"{file.name} imports {name}"
    for name in re.findall(r'(?:href|src)="static/([^"]+)"', (PAGE / "index.html").read_text(encoding="utf-8")):
        assert (PAGE / Path(name)).is_file()
