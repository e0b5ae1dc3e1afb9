"""How Sphinx builds the documentation: ``python -m sphinx -W -n --keep-going -b html docs docs/_build/html``."""

from __future__ import annotations

from sqlalchemy_public_id import __version__

project = "sqlalchemy-public-id"
author = "The sqlalchemy-public-id founders"
copyright = "The sqlalchemy-public-id founders"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = project

add_module_names = False
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
nitpicky = True
