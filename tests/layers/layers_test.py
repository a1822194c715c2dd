"""Who may include whom: the drawings and tables of docs/contribute/architecture.md against every #include.

    layers_test.py [ROOT]     exit code 1 and a line for each include that the drawing does not allow
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

SOURCES = {".cpp", ".hpp", ".cu", ".cuh", ".h", ".c"}
FOLDERS = ("include", "src", "bench", "report", "cli", "python", "tests")
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^">]+)[">]')


@dataclass
class House:
    """What docs/contribute/architecture.md says. Levels count from the ground up."""

    level: dict = field(default_factory=dict)  # folder: row of the first drawing
    cuda_level: dict = field(default_factory=dict)  # folder of src/cuda ("cuda": the files directly there): row
    families: dict = field(default_factory=dict)  # beginning of a file's name: family, or None for shared parts
    exceptions: dict = field(default_factory=dict)  # (who, includes): reason


def rows_of(text, name):
    """The rows of boxes of the drawing behind `<!-- layers NAME -->`, top to bottom."""
    found = re.search(rf"<!-- layers {name}:.*?-->\s*```text\n(.*?)```", text, re.S)
    if not found:
        sys.exit(f"docs/contribute/architecture.md: no drawing behind '<!-- layers {name}: ... -->'")
    rows = [re.findall(r"(?<=│) +([a-z0-9_]+) +(?=│)", line) for line in found[1].splitlines()]
    return [row for row in rows if row]


def cells_of(text, name):
    found = re.search(rf"<!-- layers {name}:.*?-->\s*((?:\|.*\n)+)", text)
    if not found:
        sys.exit(f"docs/contribute/architecture.md: no table behind '<!-- layers {name}: ... -->'")
    for line in found[1].splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def read_house(text):
    house = House()
    for levels, name in ((house.level, "house"), (house.cuda_level, "cuda")):
        for number, row in enumerate(reversed(rows_of(text, name))):
            levels.update(dict.fromkeys(row, number))
    for family, names in cells_of(text, "families"):
        for name in re.findall(r"`([a-z0-9_]+)`", names):
            house.families[name] = None if family == "shared" else family.strip("`")
    for who, includes, reason in cells_of(text, "exceptions"):
        for one in re.findall(r"`([a-z0-9_/]+)`", who):
            for other in re.findall(r"`([a-z0-9_/]+)`", includes):
                house.exceptions[one, other] = reason
    return house


def folder_of(path):
    """Which box of the first drawing a file lies in; path is relative to the root."""
    parts = path.parts
    return parts[1] if parts[0] == "src" else parts[0]


def cuda_folder_of(path):
    return path.parts[2] if len(path.parts) > 3 else "cuda"


def family_of(house, path):
    """The kernel family whose name a file or its folder begins with; None: a shared part."""
    if path.parts[0] != "src" or path.parts[1] not in ("cpu", "cuda", "teaching"):
        return None
    for part in path.parts[2:]:
        names = [name for name in house.families if re.match(rf"{name}(?![a-z0-9])", part)]
        if names:
            return house.families[max(names, key=len)]
    return None


def complaints(house, includes):
    """Lines for what the drawing does not allow; includes: (file, line number, included file)."""
    used = set()
    for path, number, target in includes:
        one, other = folder_of(path), folder_of(target)
        wrong = None
        if one == "tests":
            continue
        if one not in house.level:
            wrong = ("-", "-", f"{one} is in no box of the drawing")
        elif one != other and (other not in house.level or house.level[other] >= house.level[one]):
            wrong = (one, other, f"{one} may not include {other}: it does not lie below")
        elif one == other == "cuda":
            a, b = cuda_folder_of(path), cuda_folder_of(target)
            if a != b and house.cuda_level.get(b, 99) >= house.cuda_level.get(a, 0):
                wrong = (family_of(house, path) or a, b, f"src/cuda: {a} may not include {b}: it does not lie below")
        if not wrong and (one == other or one == "teaching"):
            a, b = family_of(house, path), family_of(house, target)
            if b and a != b:
                wrong = (a or "shared", b, f"{a or 'a shared part'} may not include the family {b}")
        if wrong and wrong[:2] in house.exceptions:
            used.add(wrong[:2])
        elif wrong:
            yield f"{path}:{number}: includes {target}: {wrong[2]}"
    for who, other in sorted(set(house.exceptions) - used):
        yield f"docs/contribute/architecture.md: the exception `{who}` | `{other}` is not needed any more: delete it"


def includes_of(root):
    """Every include of a file of ours by a file of ours, and complaints about CUDA in public headers."""
    files = {
        path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in SOURCES
    }
    for path in sorted(files):
        for number, line in enumerate((root / path).read_text(errors="replace").splitlines(), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            named = Path(found[1])
            for target in (Path("src") / named, Path("include") / named, named, path.parent / named):
                if target in files:
                    yield path, number, target
                    break
            else:
                if path.parts[0] == "include" and re.match(r"cuda|cublas|cudnn", found[1]):
                    sys.exit(f"{path}:{number}: a public header includes no CUDA header, found {found[1]}")


def check_the_checker(house):
    """The rules refuse what they should: an include that points up, sideways, and into another family."""
    bad = [
        ("src/core/a.hpp", "src/plan/select.hpp"),
        ("src/cpu/a.hpp", "src/cuda/family.hpp"),
        ("src/cpu/depthwise/run.cpp", "src/cpu/winograd/tile.hpp"),
        ("src/cuda/ptx/tma.cuh", "src/cuda/family.hpp"),
        ("src/plan/plan.cpp", "tests/unit/a.hpp"),
        ("src/plan/kernel_table.cpp", "src/teaching/families.hpp"),
        ("src/teaching/ladder/ladder.cu", "src/cuda/sm90/halo_tile.hpp"),
        ("src/teaching/add_kernels.cpp", "src/teaching/ladder/ladder.hpp"),
    ]
    good = [
        ("src/plan/a.cpp", "src/cpu/winograd/winograd.hpp"),
        ("src/cpu/winograd/winograd2.cpp", "src/cpu/winograd/winograd.hpp"),
        ("src/cuda/sm90/halo.cu", "src/cuda/ptx/tma.cuh"),
        ("src/teaching/ladder/ladder.cu", "src/cuda/launch.hpp"),
        ("src/teaching/add_kernels.cpp", "src/plan/kernel_table.hpp"),
        ("cli/main.cpp", "src/teaching/add_kernels.hpp"),
        ("tests/unit/a.cpp", "src/network/load.hpp"),
    ]
    house = House(house.level, house.cuda_level, house.families)
    for pairs, expected in ((bad, 1), (good, 0)):
        for one, other in pairs:
            found = list(complaints(house, [(Path(one), 1, Path(other))]))
            assert len(found) == expected, f"{one} includes {other}: expected {expected} complaints, found {found}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    house = read_house((root / "docs/contribute/architecture.md").read_text())
    check_the_checker(house)
    found = list(includes_of(root))
    wrong = list(complaints(house, found))
    print(*wrong, f"{len(found)} includes, {len(wrong)} against docs/contribute/architecture.md", sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
