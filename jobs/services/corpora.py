"""Tenants' documents, as the search tool reads them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from engine.environments.corpus import Document
from engine.errors import EnvironmentFault
from jobs.models import Dataset
from jobs.services.datasets import read_rows


def read_corpus(tenant: str, corpus: str) -> tuple[str, Iterable[Document]]:
    """(content digest, documents) of a tenant's corpus.

    tenant, corpus: their keys. Raises: EnvironmentFault if the tenant has no such corpus.
    """
    dataset = find_corpus(tenant, corpus)
    if dataset is None:
        raise EnvironmentFault("there is no such corpus")
    return dataset.sha256, _documents(dataset)


def find_corpus(tenant: str, corpus: Any) -> Dataset | None:
    """A dataset of documents by its id."""
    try:
        key = uuid.UUID(str(corpus))
    except ValueError:
        return None
    return Dataset.objects.filter(tenant_id=tenant, pk=key, kind=Dataset.Kind.CORPUS).first()


def _documents(dataset: Dataset) -> Iterator[Document]:
    for row in read_rows(dataset):
        yield Document(str(row["title"]), str(row["text"]))
