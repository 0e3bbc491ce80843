"""The artifact store: whole objects under keys, in any place that fsspec can reach.

An object is visible whole or not at all, and durable once `put` returns: local files are written
beside, synced and renamed; object stores do the same by their nature. Keys never come from people.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

import fsspec
from django.conf import settings
from fsspec.implementations.local import LocalFileSystem

from engine.errors import ArtifactError


def _store() -> tuple[fsspec.AbstractFileSystem, str]:
    fs, root = fsspec.url_to_fs(settings.ARTIFACTS_URL)
    return fs, root.rstrip("/")


def put(key: str, data: bytes) -> None:
    """Store an object. Raises ArtifactError if it could not be written; then nothing is there."""
    fs, root = _store()
    path = f"{root}/{key}"
    try:
        if isinstance(fs, LocalFileSystem):
            _put_local(Path(path), data)
        else:
            fs.makedirs(os.path.dirname(path), exist_ok=True)
            fs.pipe_file(path, data)
    except OSError as error:
        raise ArtifactError(f"artifact {key} could not be written: {error}") from error


def _put_local(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def put_file(key: str, source: Path) -> None:
    """Store a local file as an object, without reading it whole. Raises as `put`."""
    fs, root = _store()
    path = f"{root}/{key}"
    try:
        if isinstance(fs, LocalFileSystem):
            _put_file_local(source, Path(path))
        else:
            fs.makedirs(os.path.dirname(path), exist_ok=True)
            fs.put_file(str(source), path)
    except OSError as error:
        raise ArtifactError(f"artifact {key} could not be written: {error}") from error


def _put_file_local(source: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as directory:
        copy = Path(directory) / "file"
        shutil.copyfile(source, copy)
        with open(copy, "rb") as file:
            os.fsync(file.fileno())
        os.replace(copy, path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def size(key: str) -> int:
    """An object's bytes. Raises ArtifactError if it is not there."""
    fs, root = _store()
    try:
        return int(fs.size(f"{root}/{key}"))
    except OSError as error:
        raise ArtifactError(f"artifact {key} could not be read: {error}") from error


def read(key: str) -> bytes:
    """An object's content. Raises ArtifactError if it is not there."""
    fs, root = _store()
    try:
        return fs.cat_file(f"{root}/{key}")
    except OSError as error:
        raise ArtifactError(f"artifact {key} could not be read: {error}") from error


def open_stream(key: str) -> IO[bytes]:
    """An object to be read piece by piece. Raises ArtifactError if it is not there."""
    fs, root = _store()
    try:
        return fs.open(f"{root}/{key}", "rb")
    except OSError as error:
        raise ArtifactError(f"artifact {key} could not be read: {error}") from error


def put_directory(key: str, source: Path) -> int:
    """Store the files of a flat directory under `key/`; returns their bytes.

    Locally the directory appears in one rename. Raises ArtifactError; then nothing is there.
    """
    fs, root = _store()
    files = sorted(path for path in source.iterdir() if path.is_file())
    size = sum(path.stat().st_size for path in files)
    try:
        if isinstance(fs, LocalFileSystem):
            _put_directory_local(files, Path(f"{root}/{key}"))
        else:
            for path in files:
                fs.put_file(str(path), f"{root}/{key}/{path.name}")
    except OSError as error:
        raise ArtifactError(f"artifact {key} could not be written: {error}") from error
    return size


def _put_directory_local(files: list[Path], target: Path) -> None:
    if target.exists():
        return  # keys hold a digest of the content: what is there is this
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
    try:
        for path in files:
            shutil.copyfile(path, temporary / path.name)
            with open(temporary / path.name, "rb") as file:
                os.fsync(file.fileno())
        _sync_directory(temporary)
        try:
            os.rename(temporary, target)
        except OSError:
            if not target.exists():
                raise
        _sync_directory(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def local_directory(key: str) -> Path:
    """A local directory with the files of `key/`, fetched into a cache where the store is remote.

    Raises ArtifactError if it is not there.
    """
    fs, root = _store()
    if isinstance(fs, LocalFileSystem):
        path = Path(f"{root}/{key}")
        if not path.is_dir():
            raise ArtifactError(f"artifact {key} is not there")
        return path
    cached = settings.VAR_DIR / "cache" / key
    if not cached.is_dir():
        temporary = Path(tempfile.mkdtemp(dir=settings.VAR_DIR))
        try:
            fs.get(f"{root}/{key}/", str(temporary / "files"), recursive=True)
            cached.parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary / "files", cached)
        except OSError as error:
            raise ArtifactError(f"artifact {key} could not be fetched: {error}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return cached


def delete(key: str) -> None:
    """Remove an object or a directory of objects; one that is not there is no error."""
    fs, root = _store()
    if fs.exists(f"{root}/{key}"):
        fs.rm(f"{root}/{key}", recursive=True)
