#!/usr/bin/env python3
"""README's and the install page's commands, copied one after another on a bare Debian 12.

    tests/package/bare_debian.py [--folder FOLDER] [--keep] [README.md docs/start/install.md ...]

debootstrap makes a Debian that has nothing else (variant minbase), once per page; a clean clone of this repository
comes into it. Every ```sh block of the page runs there in order and in one shell, as a user would paste it. Then the
page's ```python blocks run in the virtual environment that the page made, and its ```cpp programs are compiled with
the library that docs/start/install.md installs. Needs root, debootstrap, and about an hour on two cores.
Packages come from this machine's sources: its lists of apt, its proxies and its settings of pip are copied.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ("etc/apt/sources.list", "etc/apt/sources.list.d", "etc/apt/apt.conf.d", "etc/apt/preferences.d",
            "etc/apt/trusted.gpg.d", "etc/apt/keyrings", "etc/apt/auth.conf.d", "etc/pip.conf", "etc/resolv.conf",
            "etc/hosts", "etc/ssl/certs", "usr/local/share/ca-certificates")  # fmt: skip
PASSED_ON = re.compile(r"(?i)^(https?_proxy|no_proxy|pip_.*|ssl_cert_.*|requests_ca_bundle)$")
PAGES = ("README.md", "docs/start/install.md")
INSTALL = "docs/start/install.md"
# The program's options, by the page's own command for pkg-config.
COMPILE = ("export PKG_CONFIG_PATH=$HOME/convoy/lib/pkgconfig\n"
           "c++ -std=c++20 -O2 {source} -o {program} $(pkg-config --cflags --libs --static convoy)\n{program}")


def say(text):
    print(f"bare_debian: {text}", flush=True)


def blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


def run(*command, **options):
    subprocess.run([str(word) for word in command], check=True, **options)


def run_apart(*command, **options):
    """Runs the command in a mount namespace and a process namespace of its own.

    No other process sees the command's mounts, and the kernel removes them when the command ends, even if this script
    is killed. A mount that stayed in a build folder would let `rm -rf build` delete what is mounted there.
    """
    run("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", *command, **options)


def make(folder):
    """A Debian 12 with a clean clone of this repository in /root/convoy-sources."""
    mirror = []
    lists = Path("/etc/apt/sources.list")
    for line in lists.read_text().splitlines() if lists.exists() else []:
        words = re.sub(r"\[.*?\]", "", line.split("#")[0]).split()
        if len(words) > 2 and words[0] == "deb" and words[2] == "bookworm":
            mirror = [words[1]]
    for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
        found = re.search(r"^URIs:\s*(\S+)(?:.*\n)*?Suites:.*\bbookworm\b", path.read_text(), re.M)
        mirror = mirror or ([found[1]] if found else [])
    run_apart("debootstrap", "--variant=minbase", "bookworm", folder, *mirror)
    for name in SETTINGS:
        source, target = Path("/", name), folder / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=False, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        elif source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copyfile(source, target)
    settings = Path.home() / ".config/pip"
    if settings.exists():
        shutil.copytree(settings, folder / "root/.config/pip", dirs_exist_ok=True)
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, folder / "root/convoy-sources")


def remove(folder):
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    inside = [mount for mount in mounts if Path(mount).is_relative_to(folder)]
    if inside:  # rmtree would delete what is mounted there
        command = " ".join(["umount", *inside[::-1]])
        sys.exit(f"bare_debian: found mounts in {folder}, and removed nothing. Run, as root: {command}")
    shutil.rmtree(folder, ignore_errors=True)


def shell(folder, script):
    """Runs the script in the Debian, as root in the clone; it stops at the first command that fails."""
    passed = {name: value for name, value in os.environ.items() if PASSED_ON.match(name)}
    environment = {"HOME": "/root", "TERM": "dumb", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
                   "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **passed}  # fmt: skip
    mounts = ("mkdir -p dev/pts dev/shm && mount -t proc proc proc && mount -t tmpfs shm dev/shm && "
              'mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts && exec chroot . "$@"')  # fmt: skip
    inside = ("/bin/bash", "-c", "set -e; cd /root/convoy-sources\n" + script)
    run_apart("/bin/sh", "-c", mounts, "sh", *inside, cwd=folder, env=environment)



def script_of(page, folder):
    """What a reader would paste, and the programs of the page."""
    lines = []
    for block in blocks(page, "sh"):
        lines += [f"echo '+++ {page}'", "cat <<'PASTED'", block.rstrip(), "PASTED", block]
    sources = folder / "root"
    for number, block in enumerate(blocks(page, "python")):
        (sources / f"block{number}.py").write_text(block)
        lines += [f"echo '+++ {page}: python block {number + 1}'",
                  f"(cd /root && /root/convoy-sources/.venv/bin/python /root/block{number}.py)"]  # fmt: skip
    programs = [block for block in blocks(page, "cpp") if "int main(" in block]
    if programs and page != INSTALL:  # then the library comes from the install page
        lines += [block for block in blocks(INSTALL, "sh") if "cmake --install" in block]
    for number, block in enumerate(programs):
        (sources / f"program{number}.cpp").write_text(block)
        lines += [f"echo '+++ {page}: C++ program {number + 1}'",
                  COMPILE.format(source=f"/root/program{number}.cpp", program=f"/root/program{number}")]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", default=PAGES)
    parser.add_argument("--folder", type=Path, default=ROOT / "build/bare-debian")
    parser.add_argument("--keep", action="store_true", help="leave the Debian of the last page there")
    words = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        sys.exit("bare_debian: needs root and debootstrap. As root: apt-get install debootstrap")
    folder = words.folder.resolve()
    failed = []
    for page in words.pages:
        remove(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        say(f"{page}: a bare Debian in {folder}")
        try:
            make(folder)
            shell(folder, script_of(page, folder))
            say(f"{page}: every block worked")
        except subprocess.CalledProcessError as error:
            failed.append(page)
            say(f"{page}: FAILED with exit code {error.returncode}; the lines above have the block")
        finally:
            if not words.keep or page != words.pages[-1]:
                remove(folder)
    sys.exit(f"bare_debian: failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
