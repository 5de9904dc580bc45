"""The site: Markdown and notebooks as they are read in the repository, with navigation and search, for reading offline.

The source is the whole repository, so that a link that works there works here; `make docs` builds into build/site.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

import creditscope
from creditscope.addresses import HOME

project = "creditscope"
author = "the creditscope authors"
copyright = author
version = release = creditscope.__version__

root_doc = "docs/index"
include_patterns = ["docs/**.md", "examples/*.ipynb", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = ["[!dCe]*", ".*", "docs/_*"]
"""Folders that are not entered are not searched for pages."""
extensions = ["myst_nb"]
nitpicky = True
nb_execution_mode = "off"
"""Notebooks are stored executed."""
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
myst_links_external_new_tab = False
highlight_language = "none"
smartquotes = False
"""Two dashes are an option's."""

templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"priority": 900})]
html_theme = "pydata_sphinx_theme"
html_title = "creditscope"
html_favicon = "_static/favicon.svg"
html_additional_pages = {"index": "to_index.html"}
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "creditscope", "image_light": "_static/favicon.svg", "image_dark": "_static/favicon.svg"},
    "icon_links": [{"name": "Repository", "url": HOME, "icon": "fa-brands fa-github"}],
    "navbar_end": ["live_report", "theme-switcher", "navbar-icon-links"],
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc"], "docs/index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"**": ["sidebar-nav-bs"], "docs/index": []}
html_context = {"default_mode": "auto"}

SECTIONS = ("docs/index", "docs/learn", "docs/use", "docs/reference", "docs/evidence")
FOLDERS = {"docs/checks": "checks/*", "docs/gallery": "images/*"}
"""Pages with a folder of pages of their own."""
ENTRY = re.compile(r"^- \[([^\]]+)\]\((?!\w+:)([^)#]+)\.(?:md|ipynb)\)", re.MULTILINE)

FILE_NAME = re.compile(r"\[[\w/-]+\.md\]\((?=[\w./-]+\.md)")


def read_links(app: Sphinx, page: str, source: list[str]) -> None:
    """A section's list of links is what the navigation shows under it; so it is written once, in plain Markdown.

    Links that go by the name of a file, as is the custom in a repository, go by the title of its page.
    """
    found = (
        [f"{title.replace('`', '')} <{target}>" for title, target in ENTRY.findall(source[0])]
        if page in SECTIONS
        else []
    )
    if page in FOLDERS:
        found = [":glob:", "", FOLDERS[page]]
    if found:
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", *found, "```", ""])
    source[0] = FILE_NAME.sub("[](", source[0])


def index_names(app: Sphinx, tree: nodes.document) -> None:
    """The public names become objects of Python, which search puts first and other sites can link to."""
    if app.env.docname == "docs/api":
        for section in tree.findall(nodes.section):
            name = section[0].astext()
            if name.startswith("creditscope."):
                kind = "class" if name.rpartition(".")[2][0].isupper() else "function"
                app.env.domains.python_domain.note_object(name, kind, section["ids"][0], location=section)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", read_links)
    app.connect("doctree-read", index_names)
