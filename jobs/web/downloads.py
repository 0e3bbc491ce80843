"""A version's adapter as one file: what a person loads with PEFT."""

from __future__ import annotations

import tempfile
import uuid
import zipfile

from django.http import FileResponse, Http404, HttpRequest
from django.views.decorators.http import require_safe

from engine.errors import ArtifactError
from jobs import artifacts

from .tasks import own_task

SPOOL_BYTES = 16 * 2**20


@require_safe
def adapter(request: HttpRequest, task_id: uuid.UUID, number: int) -> FileResponse:
    """The adapter's files, without training state, in a zip archive. 404 where there is none."""
    task = own_task(request, task_id)
    version = task.versions.filter(number=number, deleted_at=None).first()
    if version is None:
        raise Http404("There is no such version, or its files were cleaned up.")
    try:
        directory = artifacts.local_directory(version.key)
    except ArtifactError:
        raise Http404("Its files are not in the artifact store any more.") from None
    archive = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115 - sent, then closed
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        for path in sorted(directory.glob("adapter_*")):
            packed.write(path, path.name)
    archive.seek(0)
    name = f"adapter-{str(task.pk)[:8]}-v{number}.zip"
    return FileResponse(archive, as_attachment=True, filename=name)
