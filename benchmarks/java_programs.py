"""The programs of Java that benchmarks compare with: fetched and compiled when they are first run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["class_path", "missing"]


def missing() -> list[str]:
    """Return which programs that this needs are not installed."""
    return [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]


def class_path(name: str, program: str) -> str:
    """Return where a program and its libraries are.

    Args:
        name: the folder of the project beside this file.
        program: the file of the program within its sources.
    """
    project = Path(__file__).parent / name
    build = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / f"malflow-{name}"
    libraries, classes = build / "lib", build / "classes"
    if not libraries.exists():
        maven = ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*maven, f"-DoutputDirectory={libraries}"], check=True)  # noqa: S603 - the project's own pom
    source = project / "src/main/java/malflow" / program
    compiler = ["javac", "-nowarn", "-proc:none", "-cp", f"{libraries}/*", "-d", str(classes), str(source)]
    subprocess.run(compiler, check=True)  # noqa: S603 - the project's own program
    return os.pathsep.join([str(classes), str(project / "src/main/resources"), f"{libraries}/*"])
