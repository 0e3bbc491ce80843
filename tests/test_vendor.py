"""Committed third-party files are those of the lock, and every one of it is there."""

import hashlib
import re
import tomllib

from tools.vendor import LOCK, ROOT


def test_vendored_files_have_the_digests_written_beside_them() -> None:
    packages = tomllib.loads(LOCK.read_text())["package"]
    assert {package["name"] for package in packages} == {"uplot", "prismjs", "axe-core"}
    for package in packages:
        target = ROOT / package["target"]
        text = (target / "VENDOR.md").read_text()
        assert f"{package['name']} {package['version']}" in text
        found = dict(re.findall(r"`([^`]+)`: \d+ bytes, sha256 `([0-9a-f]{64})`", text))
        assert set(found) == {name.rpartition("/")[2] for name in package["files"]}
        for name, digest in found.items():
            assert hashlib.sha256((target / name).read_bytes()).hexdigest() == digest
