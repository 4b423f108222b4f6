"""Sphinx's settings: Markdown pages, no network."""

project = "gemmgate"
author = "the gemmgate authors"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Is this kernel really faster?", "fixed_sidebar": True}
myst_heading_anchors = 3
