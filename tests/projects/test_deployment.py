"""The manifest for Kubernetes, the compose file and the image of a project, as far as they can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from malflow.cli.project import TEMPLATES, project_files
from malflow.monitor.run_files import RunFile

X
