"""The function that hides parts of records before they are shown: ``redact`` of ``[serve]``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from malflow.config import Settings
from malflow.errors import ConfigError, ConfigFault
from malflow.monitor.samples import Redact
from malflow.words import error_line, short_repr

__all__ = ["redact_of"]

_SETTING = ("serve", "redact")


def redact_of(settings: Settings) -> Redact | None:
    """Return the configured function; None if there is none.

    If the module has the name of the running script, it is that script. The script is not imported a second time.

    Raises:
        ConfigError: if there is no such function.
    """
    text = settings.serve.redact
    if text is None:
        return None
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise _fault(settings, f"must be module:function, such as flow:mask; got {short_repr(text)}")
    try:
        thing: Any = _module(module)
        for step in name.split("."):
            thing = getattr(thing, step)
    except Exception as error:
        raise _fault(settings, f"{text!r} can't be loaded: {error_line(error)}") from error
    if not callable(thing):
        raise _fault(settings, f"{text!r} is not a function; got {short_repr(thing)}")
    found: Redact = thing
    return found


def _module(name: str) -> ModuleType:
    script = sys.modules["__main__"]
    file = getattr(script, "__file__", None)
    is_script = isinstance(file, str) and Path(file).stem == name and name not in sys.modules
    return script if is_script else import_module(name)


def _fault(settings: Settings, reason: str) -> ConfigError:
    entries = settings.stacks.get(_SETTING, ())
    origin = str(entries[-1].origin) if entries else None
    return ConfigError([ConfigFault("serve.redact", origin, f"serve.redact {reason}")])
