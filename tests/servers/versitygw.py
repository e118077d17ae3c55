"""versitygw, an S3 server that is used in production: checks signatures, creates exclusively."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.servers.debian import require
from tests.servers.server import INSTALLED, Server, run

__all__ = ["Versitygw", "storage_options"]

VERSION = "1.8.0"
_BINARY = INSTALLED / f"versitygw-{VERSION}"
_KEY, _SECRET = "malflow-key", "malflow-secret"
_GO = Path("/usr/local/go/bin/go")


class Versitygw(Server):
    """An S3 server that keeps buckets as folders."""

    name = "versitygw"

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why the server cannot be started, such as a missing package, or None."""
        return None if _BINARY.exists() else f"versitygw {VERSION} is not installed"

    @classmethod
    def install(cls) -> None:
        """Build it from the Go module; it takes minutes of CPU time."""
        if cls.missing() is None:
            return
        go = str(_GO) if _GO.exists() else require("go", "golang-go")
        part = INSTALLED / f"{_BINARY.name}.part"
        environment = {
            "GOBIN": f"{part}/bin",
            "GOCACHE": f"{part}/cache",
            "GOMODCACHE": f"{part}/modules",
            "GOFLAGS": "-modcacherw",
        }
        module = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
        run(go, "install", "-ldflags=-s -w", module, environment=environment)
        (part / "bin" / "versitygw").rename(_BINARY)
        shutil.rmtree(part)

    @property
    def address(self) -> str:
        """The URL of the endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, Any]:
        """Storage options of s3fs."""
        return storage_options(self.address)

    def configure(self) -> None:
        """Make the folder of the buckets."""
        (self.folder / "buckets").mkdir()
        (self.folder / "attributes").mkdir()

    def environment(self) -> Mapping[str, str]:
        """Return the key and the secret."""
        return {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}

    def command(self) -> Sequence[str]:
        """Return the command that is the server, in the foreground."""
        folders = [str(self.folder / "buckets")]
        if not _has_attributes(self.folder):
            folders = ["--sidecar", str(self.folder / "attributes"), *folders]
        return [str(_BINARY), "--port", f"127.0.0.1:{self.port}", "posix", *folders]


def storage_options(endpoint: str) -> dict[str, Any]:
    """Return storage options of s3fs that lead to a server."""
    return {"key": _KEY, "secret": _SECRET, "client_kwargs": {"endpoint_url": endpoint}}


def _has_attributes(folder: Path) -> bool:
    try:
        os.setxattr(folder, "user.malflow", b"")
    except OSError:
        return False
    return True
