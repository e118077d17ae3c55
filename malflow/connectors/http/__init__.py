"""HTTP: records to a URL, look-ups, and a source that is a web server."""

from malflow.errors import not_imported

try:
    import aiohttp  # noqa: F401 - asked for here, so that the error names the extra
    import urllib3  # noqa: F401
except ImportError as missing:
    raise not_imported("malflow.connectors.http needs aiohttp and urllib3", "http", missing) from missing

from malflow.connectors.http.lookup import HttpLookup, HttpLookupError
from malflow.connectors.http.sink import HttpSink
from malflow.connectors.http.webhook import WebhookSource

__all__ = ["HttpLookup", "HttpLookupError", "HttpSink", "WebhookSource"]
