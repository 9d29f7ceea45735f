"""The settings of Sphinx for the site; `make docs` builds it from build/docs/source."""

import re
from pathlib import Path

from opgen import __version__
from sphinx.application import Sphinx

project = "tallow and opgen"
release = __version__
copyright = "the maintainers of opgen"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "docs.site.entries"]
autosummary_generate = False
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
# A name in backticks of a docstring is a link where it is one of ours.
default_role = "py:obj"
# Two classes are called Group: what an annotation names is not linked then.
suppress_warnings = ["ref.python"]
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
smartquotes = False
include_patterns = [
    "*.md",
    "docs/**",
    "api/*.md",
    "generated/docs/*.md",
    "reference/**",
    "spec/README.md",
    "tests/*/README.md",
]
exclude_patterns = ["README.md"]
html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
MEASUREMENTS = re.findall(r"^docs/\S+$", Path(__file__).with_name("measurements.md").read_text("utf-8"), re.MULTILINE)
WIDE = (*MEASUREMENTS, "index", "names", "reference/matrix", "reference/index")
# Pages of the bar at the top that have none below them.
html_sidebars: dict[str, list[str]] = {page: [] for page in ("index", "docs/architecture", "CONTRIBUTING", "CHANGELOG")}
html_theme_options = {
    "show_prev_next": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    # Wide tables use its space.
    "secondary_sidebar_items": {"**": ["page-toc"], **{page: [] for page in WIDE}},
    "footer_start": [],
    "footer_end": [],
}
# Nothing but the pages says how they are reached.
html_context = {"default_mode": "auto"}


def _prepare(application: Sphinx, page: str, source: list[str]) -> None:
    """Put every page of docs/ that nothing names into the navigation, and lay out drawings as tables."""
    docs = Path(application.srcdir, "docs")
    source[0] = re.sub(r"^```mermaid\n.*?^```$", _as_table, source[0], flags=re.MULTILINE | re.DOTALL)
    if page == "guides":
        named = {word for file in Path(application.srcdir).glob("*.md") for word in file.read_text("utf-8").split()}
        pages = [f"docs/{file.relative_to(docs).with_suffix('').as_posix()}" for file in sorted(docs.rglob("*.md"))]
        # The pages of a folder are below the page that is named as the folder is.
        unnamed = [each for each in pages if each not in named and str(Path(each).parent) not in pages]
        source[0] = source[0].replace("@pages@", "\n".join(unnamed))
    elif (folder := Path(application.srcdir, page)).is_dir() and page.startswith("docs/"):
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{folder.name}/*\n```\n"


def _as_table(drawing: re.Match[str]) -> str:
    """Convert a Mermaid flowchart to a table, for readers whose page has no script that draws it."""
    labels = dict(re.findall(r'(\w+)\["(.*?)"\]', drawing[0]))
    arrows: dict[str, list[str]] = {}
    for start, end in re.findall(r"(\w+) --> (\w+)", drawing[0]):
        arrows.setdefault(labels[start], []).append(labels[end])
    rows = [f"| {start} | {', '.join(ends)} |" for start, ends in arrows.items()]
    return "\n".join(["| from | to |", "| --- | --- |", *rows])


def setup(application: Sphinx) -> None:
    """Connect what changes pages before they are read."""
    application.connect("source-read", _prepare)
