"""The directives that show what a public header declares, in the order of the header, from Doxygen's XML.

Breathe's own directive for a file also shows the namespace that every header opens, once on each page.
"""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

# Options of the directives: everything that a user may call, with its comment.
MEMBERS = [":members:", ":undoc-members:"]
OF_KIND = {"class": ("doxygenclass", MEMBERS), "struct": ("doxygenstruct", MEMBERS), "enum": ("doxygenenum", []),
           "typedef": ("doxygentypedef", []), "variable": ("doxygenvariable", []),
           "function": ("doxygenfunction", [])}  # fmt: skip


def declared(xml: Path, header: str) -> list[tuple[int, str, str]]:
    """(line, kind, name) of the classes and of the members of the namespace that this header declares."""
    found = []

    def add(element, kind: str, name: str) -> None:
        place = element.find("location")
        if place is not None and place.get("file", "").endswith(f"convoy/{header}"):
            found.append((int(place.get("line")), kind, name))

    for path in sorted(xml.glob("*convoy*.xml")):
        for compound in ElementTree.parse(path).getroot().iter("compounddef"):
            kind, name = compound.get("kind"), compound.findtext("compoundname")
            if kind in ("class", "struct"):
                if name.count("::") == 1:  # a nested one is shown with the class that has it
                    add(compound, kind, name)
            elif kind == "namespace":
                for member in compound.iter("memberdef"):
                    arguments = member.findtext("argsstring") if member.get("kind") == "function" else ""
                    add(member, member.get("kind"), f"{name}::{member.findtext('name')}{arguments}")
    return sorted(found)


def directives(xml: Path, header: str) -> str:
    lines = []
    for _, kind, name in declared(xml, header):
        directive, options = OF_KIND[kind]
        lines += ["", f"```{{{directive}}} {name}", *options, "```"]
    return "\n".join(lines) + "\n"
