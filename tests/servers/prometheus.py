"""Prometheus, from Debian's package. It reads its targets and rules from files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tests.servers.debian import require
from tests.servers.server import Server

__all__ = ["Prometheus"]

_CONFIGURATION = """
global:
  scrape_interval: 250ms
  evaluation_interval: 250ms
rule_files: [rules.yml]
scrape_configs:
  - job_name: malflow
    honor_labels: true
    file_sd_configs:
      - files: [targets.json]
"""


class Prometheus(Server):
    """A Prometheus server that scrapes and evaluates four times a second."""

    name = "Prometheus"

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why the server cannot be started, such as a missing package, or None."""
        is_there = all(map(shutil.which, ("prometheus", "promtool")))
        return None if is_there else "Debian's package prometheus is not installed"

    @classmethod
    def install(cls) -> None:
        """Install Debian's package, without its service."""
        require("promtool", "prometheus")

    @property
    def address(self) -> str:
        """The URL of its API."""
        return f"http://127.0.0.1:{self.port}/api/v1"

    def configure(self) -> None:
        """Write a configuration without targets and rules."""
        (self.folder / "prometheus.yml").write_text(_CONFIGURATION, encoding="utf-8")
        self.scrape()
        self._write_rules("groups: []\n")

    def command(self) -> Sequence[str]:
        """Return the command that runs the server in the foreground."""
        return [
            "prometheus",
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-lifecycle",
            "--log.level=warn",
        ]

    def answers(self) -> bool:
        """Whether it is ready."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=1) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def scrape(self, *targets: str) -> None:
        """Scrape only these targets, each ``host:port``; the server notices at once."""
        text = json.dumps([{"targets": targets}])
        new = self.folder / "targets.new"
        new.write_text(text, encoding="utf-8")
        new.rename(self.folder / "targets.json")

    def use_rules(self, text: str) -> None:
        """Evaluate only these rules."""
        self._write_rules(text)
        post = Request(f"http://127.0.0.1:{self.port}/-/reload", method="POST")
        urlopen(post, timeout=30).close()  # noqa: S310 - its own

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of an expression, each with its labels and value."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def firing(self) -> set[tuple[str, str]]:
        """Return the job and name of each firing alert."""
        alerts = [it["labels"] for it in self._get("alerts")["alerts"] if it["state"] == "firing"]
        return {(it["job"], it["alertname"]) for it in alerts}

    def _write_rules(self, text: str) -> None:
        (self.folder / "rules.yml").write_text(text, encoding="utf-8")

    def _get(self, what: str, **arguments: str) -> Any:
        with urlopen(f"{self.address}/{what}?{urlencode(arguments)}", timeout=30) as reply:  # noqa: S310 - its own
            return json.load(reply)["data"]
