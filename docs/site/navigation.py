"""The order of the site's pages, and what the pages of the reference show besides their own text.

Pages are plain Markdown, so that a file browser shows them too. What only the site needs is added here while a page is
read: the table of contents, and the C++ and Python references.
"""

from pathlib import Path

import cpp_reference

ROOT = Path(__file__).resolve().parents[2]

# Caption, then pages. A page that ends in "/" is a folder: its index page, with the folder's other pages below it.
CONTENTS = {
    "Start": ["start/install", "start/python", "start/cpp", "start/gpu", "start/examples", "start/faq"],
    "Use": ["use/fuse", "use/fuse-parts", "use/deploy", "use/pytorch", "use/spiking", "use/arrays", "use/stages",
            "use/networks", "use/model-folders", "use/cli/", "use/make-it-fast", "use/distributed", "use/training"],
    "Trust": ["trust/speed", "trust/slow-paths", "trust/numbers", "trust/guarantees", "trust/benchmarking",
              "/bench/results/"],
    "Learn": ["learn/implicit-gemm", "learn/kernel-from-inside", "learn/fragments", "learn/banks", "learn/pipelines",
              "learn/hopper", "learn/ladder", "learn/time", "learn/explain", "learn/words", "learn/references"],
    "Reference": ["reference/cpp/", "reference/python", "reference/options", "/CHANGELOG"],
    "Contribute": ["/CONTRIBUTING", "contribute/architecture", "contribute/life-of-a-call", "contribute/graph",
                   "contribute/kernels/", "contribute/adding-a-cpu-kernel", "contribute/adding-a-gpu-kernel",
                   "contribute/adding-an-activation", "contribute/adding-an-output-type", "contribute/checks",
                   "contribute/debugging", "contribute/fuzzing",
                   "contribute/style", "lab/"],
}  # fmt: skip
# Pages that other pages link to, and no table of contents needs.
APART = ["/README", "/models/fashion-scnn/README", "/models/rgb-scnn/README"]
INDEXES = ("index", "README")

# Python modules on the page of the Python reference, with their title.
MODULES = {
    "convoy": "convoy",
    "convoy.torch": "convoy.torch: stages in PyTorch",
    "convoy.fusing": "convoy.fusing: the options of convoy.fuse",
    "convoy.exporting": "convoy.exporting: model folders from PyTorch",
    "convoy.spiking": "convoy.spiking: spiking layers",
    "convoy.nir_format": "convoy.nir_format: NIR graphs of model folders",
    "convoy.nir_reading": "convoy.nir_reading: model folders from NIR graphs",
    "convoy.ray": "convoy.ray: labels of many images by Ray",
}
VERSION = [".. py:data:: __version__", "   :type: str", "", "   The version of the package, for example ``0.1.0``."]


def document(page: str) -> str:
    """The name by which Sphinx knows a page, from the root."""
    name = page.removeprefix("/") if page.startswith("/") else f"docs/{page}"
    if not page.endswith("/"):
        return name
    return next((f"{name}{index}" for index in INDEXES if (ROOT / f"{name}{index}.md").exists()), f"{name}index")


def toctree(pages: list[str], caption: str = "") -> str:
    lines = ["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *pages, "```", ""]
    return "\n".join(lines)


def below(index: str) -> list[str]:
    """The other pages of an index page's folder, and of the folders in it."""
    folder = (ROOT / index).parent
    own = ROOT / f"{index}.md"
    return ["/" + str(path.relative_to(ROOT).with_suffix("")) for path in sorted(folder.rglob("*.md")) if path != own]


def python_reference() -> str:
    parts = []
    for module, title in MODULES.items():
        parts += [f"\n## {title}\n", "```{eval-rst}", f".. automodule:: {module}", "   :members:",
                  "   :show-inheritance:", "", *(VERSION if module == "convoy" else []), "```", ""]  # fmt: skip
    return "\n".join(parts)


def add(app, docname: str, content: list[str]) -> None:
    """Adds to a page's text what only the site has."""
    folders = [document(page) for pages in CONTENTS.values() for page in pages if page.endswith("/")]
    if docname == app.config.root_doc:
        content[0] += "".join(toctree(["/" + document(page) for page in pages], caption)
                              for caption, pages in CONTENTS.items())  # fmt: skip
    elif docname in folders:
        content[0] += toctree(below(docname))
    elif docname == "docs/reference/python":
        content[0] += python_reference()
    elif docname.startswith("docs/reference/cpp/") and not docname.endswith("index"):
        xml = Path(app.config.breathe_projects[app.config.breathe_default_project])
        content[0] += cpp_reference.directives(xml, f"{Path(docname).name}.hpp")
    if "/" + docname in APART:
        content[0] = "---\norphan: true\n---\n\n" + content[0]


def setup(app):
    app.connect("source-read", add)
    return {"parallel_read_safe": True}
