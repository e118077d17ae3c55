"""Sources and sinks for other systems, a folder for each; `connect` finds them by a URL."""

from malflow.connectors.by_name import Connection, connect

__all__ = ["Connection", "connect"]
