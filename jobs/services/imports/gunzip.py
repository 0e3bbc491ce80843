"""gzip from strangers, unpacked as it is read, within limits on what it expands to."""

from __future__ import annotations

import zlib
from typing import IO

from .records import whole_file

MAGIC = b"\x1f\x8b"
MAX_EXPANDED_BYTES = 8 * 2**30
MAX_RATIO = 200  # JSON of one's own making shrinks to a fifth, very repetitive text to a fiftieth
RATIO_FROM_BYTES = 8 * 2**20  # below that a bomb is small
_PIECE_BYTES = 2**16
_GZIP_WINDOW = 31


class GunzipStream:
    """Reads the content of a gzip file. `cut`: the file is only a head, so its end is no fault."""

    def __init__(self, file: IO[bytes], *, cut: bool = False) -> None:
        self._file, self._cut = file, cut
        self._unpacker = zlib.decompressobj(_GZIP_WINDOW)
        self._packed = b""
        self._num_packed = self._num_expanded = 0
        self._ended = False

    def read(self, size: int) -> bytes:
        """At most `size` bytes; b"" at the end. Raises: DatasetError."""
        while not self._ended:
            if not self._packed and not self._unpacker.eof:
                self._fill()
            if self._unpacker.eof:
                self._next_member()
                continue
            data = self._unpack(size)
            if data:
                return data
        return b""

    def _fill(self) -> None:
        self._packed = self._file.read(_PIECE_BYTES)
        self._num_packed += len(self._packed)
        if not self._packed:
            self._ended = True
            if not self._cut:
                raise whole_file(
                    "The gzip file ends before its content does: the upload is incomplete."
                )

    def _unpack(self, size: int) -> bytes:
        try:
            data = self._unpacker.decompress(self._packed, size)
        except zlib.error as error:
            raise whole_file(
                f"The gzip file is damaged after {self._num_expanded:,} bytes of content: {error}."
            ) from None
        self._packed = self._unpacker.unconsumed_tail
        self._num_expanded += len(data)
        self._check_size()
        return data

    def _check_size(self) -> None:
        if self._num_expanded > MAX_EXPANDED_BYTES:
            raise whole_file(
                f"The gzip file expands to more than {MAX_EXPANDED_BYTES // 2**30} GiB."
            )
        ratio = self._num_expanded / max(1, self._num_packed)
        if self._num_expanded > RATIO_FROM_BYTES and ratio > MAX_RATIO:
            raise whole_file(
                f"The gzip file expands more than {MAX_RATIO}-fold; upload it unpacked."
            )

    def _next_member(self) -> None:
        """A gzip file may be several, one after the other; zeros may follow the last."""
        rest = self._unpacker.unused_data
        if len(rest) < len(MAGIC):
            more = self._file.read(_PIECE_BYTES)
            self._num_packed += len(more)
            rest += more
        if not rest.strip(b"\0"):
            self._ended = not rest or not self._file.read(1)
            if self._ended:
                return
            raise whole_file("After the end of the gzip file's content comes something else.")
        if not rest.startswith(MAGIC) and not self._cut:
            raise whole_file("After the end of the gzip file's content comes something else.")
        self._unpacker = zlib.decompressobj(_GZIP_WINDOW)
        self._packed = rest
