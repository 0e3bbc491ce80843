"""Settings of the tests: a directory and a Redis port of their own, chosen before Django loads."""

import os
import socket
import tempfile

os.environ.setdefault("MARLAAS_VAR", tempfile.mkdtemp(prefix="marlaas-test-"))
if "REDIS_URL" not in os.environ:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["REDIS_URL"] = f"redis://127.0.0.1:{probe.getsockname()[1]}/0"

from marlaas_site.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # noqa: F405  # WhiteNoise warns where there is none
