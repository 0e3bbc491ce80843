"""Where nothing is generated or trained, nobody may be served."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = "from marlaas_site.settings import EMULATION; print(EMULATION)"


def settings_with(var: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("REDIS_URL", "USE_TLS", "WEB_HOST")}
    return subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**clean, "MARLAAS_VAR": str(var), **env},
        capture_output=True,
        text=True,
    )


def test_emulation_is_off_unless_a_script_is_named(tmp_path: Path) -> None:
    assert settings_with(tmp_path).stdout.strip() == ""
    assert settings_with(tmp_path, MARLAAS_EMULATION="/a/b").stdout.strip() == "/a/b"


@pytest.mark.parametrize(
    "env", [{"USE_TLS": "1"}, {"WEB_HOST": "0.0.0.0"}, {"REDIS_URL": "redis://other:6379/0"}]
)
def test_emulation_is_refused_where_others_could_be_served(
    tmp_path: Path, env: dict[str, str]
) -> None:
    done = settings_with(tmp_path, MARLAAS_EMULATION="/a/b", **env)
    assert done.returncode != 0
    assert "MARLAAS_EMULATION is for benchmarks" in done.stderr
