"""The server that forks worker processes imports what most tests need, before it forks the first.

Otherwise each worker process would import `malflow.testing` and pytest, for a tenth of a second of two processors.
"""

from __future__ import annotations

from malflow.runtime.processes import fork_server

__all__: list[str] = []

_IMPORTS = "import hypothesis, malflow.testing, pytest\n"
_SERVES = "from malflow.runtime.processes.fork_server import serve\n"


def pytest_configure() -> None:
    """Add the imports to the program of the servers that this process starts."""
    assert _SERVES in fork_server._PROGRAM
    fork_server._PROGRAM = fork_server._PROGRAM.replace(_SERVES, _IMPORTS + _SERVES)
