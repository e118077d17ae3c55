"""How the site is built: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fault_marks import with_tests

project = "malflow"
author = "the malflow contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "malflow"
html_show_copyright = False
html_show_sphinx = False
myst_heading_anchors = 4
default_role = "code"  # docstrings put names between single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures are read in an editor; the text says what matters
suppress_warnings = ["ref.python"]  # several classes have an attribute `bytes`, which types of others may mean
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Raises, in every method", "Raises")]


def setup(app: Any) -> None:
    """Add to the page of faults the tests that carry each mark."""
    app.connect("source-read", _add_tests)


def _add_tests(_app: Any, page: str, source: list[str]) -> None:
    if page == "faults":
        source[0] = with_tests(source[0])
