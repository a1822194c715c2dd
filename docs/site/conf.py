"""The site's settings for Sphinx; scripts/docs runs it. The source folder is the repository's root, so that links
between pages are the same on the site and in a file browser."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

project = "Convoy"
author = "the Convoy authors"
copyright = "the Convoy authors. MIT licence"
version = release = "0.1.0"

extensions = [
    "myst_parser",
    "breathe",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "navigation",
    "source_pages",
]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "docs/**/*.md", "models/**/README.md",
                    "bench/results/*.md", "bench/results/**/*.md"]
exclude_patterns = ["build", ".git", "src", "tests", "shapes", "docs/site"]

html_theme = "furo"
html_title = "Convoy"
html_static_path = ["static"]
html_css_files = ["convoy.css"]
html_js_files = ["convoy.js"]
html_show_search_summary = False  # it would fetch each page that is found, which browsers forbid for file:
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None,
                    "source": "{{path}}{{fragment}}"}  # of source_pages.py
suppress_warnings = ["myst.header"]

nitpicky = True
# Names of the standard library and of others' packages, which this site does not describe.
nitpick_ignore_regex = [
    ("cpp:identifier", r"(convoy|std|__cxx11|DL\w+|size_t|int64_t|uint\d+_t)(::.*)?"),
    ("py:class", r"(fx\.Graph|Watch|convoy\.fusing_graph\.\w+)"),  # in signatures, of the package's inside
    ("py:.*", r"(numpy|np|torch|nn|nir|jax|ray|cupy|typing|collections|os|pathlib|types|nanobind)(\..*)?"),
]

breathe_projects = {"convoy": os.environ.get("CONVOY_DOXYGEN_XML", str(ROOT / "build/docs/doxygen/xml"))}
breathe_default_project = "convoy"
breathe_domain_by_extension = {"hpp": "cpp"}
cpp_id_attributes = ["CONVOY_API"]

autodoc_mock_imports = ["torch", "nir", "ray", "numpy"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_use_ivar = True
default_role = "code"  # single backticks in docstrings


def keep_whole(app, what, name, obj, options, lines):
    """Napoleon takes words before a colon in the first line of a property for a type: an empty comment comes first."""
    if what in ("property", "attribute"):
        lines[:0] = ["..", ""]


def setup(app):
    app.connect("autodoc-process-docstring", keep_whole, priority=100)
