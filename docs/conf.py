"""How the site is built: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

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
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Raises, in every method", "Raises")]
