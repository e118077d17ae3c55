"""Configuration of runs: a file, the environment and overrides, over the options of the code.

A program that calls `execute()` is not configured: `load` reads the layers, and `Settings.runtime` or
`Settings.apply_to` make a runtime of them. Importing this module reads neither files nor the environment.

>>> settings = load(None, env={"MALFLOW_RUN__PARALLELISM": "4"}, overrides={"run.snapshots": "10s"})
>>> settings.run.parallelism, settings.run.snapshots
(4, datetime.timedelta(seconds=10))
"""

from malflow.config.documents import (
    ShownSetting,
    faults_document,
    schema,
    settings_document,
    settings_text,
    shown_settings,
    toml_text,
)
from malflow.config.loading import check, load
from malflow.config.reading import Override
from malflow.config.settings import Settings

__all__ = [
    "Override",
    "Settings",
    "ShownSetting",
    "check",
    "faults_document",
    "load",
    "schema",
    "settings_document",
    "settings_text",
    "shown_settings",
    "toml_text",
]
