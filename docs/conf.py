"""How Sphinx makes the documentation's site: ``sphinx-build -W --keep-going docs build/site``."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import make_reference
import pages_beside_code

from fluid.ops import document

make_reference.write()
pages_beside_code.write()
(pages_beside_code.DOCS / "ops.md").write_text(document.render(), encoding="utf-8")

project = "Fluid"
copyright = "the authors of Fluid"
release = version = importlib.metadata.version("fluid-graph")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
default_role = "code"

html_theme = "furo"
html_title = "Fluid"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False

# Markdown, as it is shown beside the sources, too: links to headings, and to files that are no pages.
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
nb_execution_mode = "off"  # notebooks keep what they showed; the tests run them

autodoc_default_options = {"members": True, "undoc-members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 100
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
suppress_warnings = ["ref.python"]  # `type` in an annotation may be Python's, or an attribute of several classes


def lead_to_copies(app, docname, source):
    """Lead links to pages outside of this folder to their copies in the site."""
    source[0] = pages_beside_code.linked(source[0], (pages_beside_code.DOCS / docname).parent)


def setup(app):
    app.connect("source-read", lead_to_copies)
