"""What a tenant reads of a failure: the cause, but nothing of the machine it happened on."""

from __future__ import annotations

import re

from engine.errors import MarlaasError

# An absolute path or a URL, up to what ends one in a message.
_PLACE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://|(?<![\w./…-])/(?=[^\s/]))[^\s'\"`<>|;,]*")


def told(error: BaseException | str) -> str:
    """The text of an error with paths and addresses left out; of a fault of ours its kind only."""
    if isinstance(error, BaseException) and not isinstance(error, (MarlaasError, OSError)):
        return f"internal error: {type(error).__name__}; the operator's log says more"
    return _PLACE.sub("…", str(error)).replace("\0", "")  # PostgreSQL stores no NUL
