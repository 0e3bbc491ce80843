"""Copies third-party files into the tree at exact versions: `python tools/vendor.py`.

Run by a person who changed tools/vendor.lock.toml; the results are committed, so that neither an
installation nor a browser fetches anything. Needs npm. A test compares what is committed with the
sizes and digests written to VENDOR.md.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "tools" / "vendor.lock.toml"


def main() -> None:
    """Fetch, check and copy every package of the lock."""
    for package in tomllib.loads(LOCK.read_text())["package"]:
        with tempfile.TemporaryDirectory() as directory:
            copy_files(package, fetch(package, Path(directory)))
        print(f"{package['name']} {package['version']} → {package['target']}")


def fetch(package: dict[str, Any], directory: Path) -> Path:
    """The package's archive, as `npm pack` gets it. Exits if its hash is not the lock's."""
    spec = f"{package['name']}@{package['version']}"
    subprocess.run(["npm", "pack", "--silent", spec], cwd=directory, check=True)
    (archive,) = directory.glob("*.tgz")
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != package["integrity"]:
        sys.exit(f"{spec}: the archive's hash is {found}, the lock says {package['integrity']}")
    return archive


def copy_files(package: dict[str, Any], archive: Path) -> None:
    """Write the listed files and a VENDOR.md beside them."""
    target = ROOT / package["target"]
    target.mkdir(parents=True, exist_ok=True)
    lines = [f"# {package['name']} {package['version']} ({package['licence']})", ""]
    with tarfile.open(archive) as tar:
        for name in package["files"]:
            member = tar.extractfile(f"package/{name}")
            assert member is not None, f"{name} is no file of {package['name']}"
            data = without_source_map(member.read())
            (target / Path(name).name).write_bytes(data)
            digest = hashlib.sha256(data).hexdigest()
            lines.append(f"- `{Path(name).name}`: {len(data)} bytes, sha256 `{digest}`")
    (target / "VENDOR.md").write_text("\n".join(lines) + "\n")


def without_source_map(data: bytes) -> bytes:
    """The file without its sourceMappingURL line: manifest storage fails on a missing map."""
    return re.sub(rb"\n?(//|/\*)# sourceMappingURL=[^\n]*", b"", data)


if __name__ == "__main__":
    main()
