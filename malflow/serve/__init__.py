"""The page of a run: a small web server in a thread of its own. It also serves documents, metrics and health.

`Page` is the server; `malflow.monitor.Monitor` takes one, and ``malflow run --serve`` makes one.
"""

from malflow.errors import not_imported

try:
    from malflow.serve.server import Page
except ImportError as missing:
    raise not_imported("the page of a run needs aiohttp and prometheus-client", "serve", missing) from missing

__all__ = ["Page"]
