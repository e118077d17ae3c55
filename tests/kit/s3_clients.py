"""S3 clients that are made quickly: tests make hundreds, and each would read the same files of botocore again."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["share_files"]


def share_files() -> None:
    """Make the clients of this process share the models of S3, certificates, and the list of moto's services."""
    loader_type = _module("botocore.loaders").Loader
    new_loader, models = loader_type.__init__, dict[Any, Any]()

    def with_models(loader: Any, *arguments: Any, **options: Any) -> None:
        new_loader(loader, *arguments, **options)
        loader._cache = models

    loader_type.__init__ = with_models
    session = _module("aiobotocore.httpsession").AIOHTTPSession
    build, plain = session._build_verify_context, list[Any]()

    def verify_context(client: Any) -> Any:
        if client._verify is not True or client._cert_file or client._proxy_config._proxies:
            return build(client)  # it has certificates of its own
        if not plain:
            plain.append(build(client))
        return plain[0]

    session._build_verify_context = verify_context
    backends = _module("moto.backends")
    services = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: services


def _module(name: str) -> Any:
    return import_module(name)
