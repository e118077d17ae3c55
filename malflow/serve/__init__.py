"""The page of a run: a small web server in a thread of its own. It also serves documents, metrics and health.

`Page` is the server; `malflow.monitor.Monitor` takes one, and ``malflow run --serve`` makes one.
"""

from malflow.errors import MissingDependency

try:
    from malflow.serve.server import Page
except ImportError as missing:
    raise MissingDependency(
        "the page of a run needs aiohttp and prometheus-client; pip install 'malflow[serve]'"
    ) from missing

__all__ = ["Page"]
