"""Fetch the libraries of the page again: ``make vendor`` runs ``python -m tests.serve.vendor``, which needs npm.

The files are as in their packages, with two changes to modules: imports by name become relative, as a
browser finds no others, and comments that name source maps are removed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "PACKAGES", "digest"]

FOLDER = Path(__file__).parents[2] / "malflow" / "serve" / "page" / "vendor"
"""The folder of the libraries, with ``vendor.json``, which describes each file."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the npm registry.

    Attributes:
        name: its name.
        version: its version.
        licence: its licence, by its SPDX name.
        files: its files to keep, and their names here.
    """

    name: str
    version: str
    licence: str
    files: dict[str, str]


PACKAGES = (
    Package("preact", "11.2.0", "MIT", {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js"}),
    Package("htm", "3.1.1", "Apache-2.0", {"dist/htm.module.js": "htm.js"}),
    Package("uplot", "1.6.32", "MIT", {"dist/uPlot.iife.min.js": "uplot.js", "dist/uPlot.min.css": "uplot.css"}),
)
"""The packages, in the tested versions."""


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def fetched(package: Package, npm: str, folder: Path) -> Path:
    """Return the folder with the content of a package."""
    pack = [npm, "pack", f"{package.name}@{package.version}", "--silent", "--pack-destination", str(folder)]
    subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob(f"{package.name}-*.tgz")
    with tarfile.open(archive) as content:
        content.extractall(folder / package.name, filter="data")
    return folder / package.name / "package"


def adapted(text: str) -> str:
    """Return a module as a browser can load it, without a build."""
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
    return "\n".join(lines).replace('from"preact"', 'from"./preact.js"') + "\n"


def main() -> int:
    """Fetch all packages; return the exit code."""
    npm = shutil.which("npm")
    if npm is None:
        print("make vendor needs npm, which is not installed")
        return 1
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for package in PACKAGES:
            content = fetched(package, npm, Path(temporary))
            licence = f"{package.name}.LICENSE"
            shutil.copyfile(content / "LICENSE", FOLDER / licence)
            for source, name in package.files.items():
                (FOLDER / name).write_text(adapted((content / source).read_text(encoding="utf-8")), encoding="utf-8")
                rows.append(
                    {
                        "file": name,
                        "name": package.name,
                        "version": package.version,
                        "source": source,
                        "sha256": digest((FOLDER / name).read_bytes()),
                        "licence": package.licence,
                        "licence_file": licence,
                    }
                )
    (FOLDER / "vendor.json").write_text(f"{json.dumps({'files': rows}, indent=2)}\n", encoding="utf-8")
    print(f"{len(rows)} files of {len(PACKAGES)} packages in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
