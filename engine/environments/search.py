"""Looking things up: a tool over a tenant's own documents, or over a MediaWiki site.

Results are the beginnings of the best documents, short enough that several searches fit into a
small model's context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import GraderError
from ..parameters import parameter
from ..rewards import Services
from .corpus import Document
from .tool import ToolError

WIKIPEDIA = "https://en.wikipedia.org/w/api.php"
NOTHING = "nothing was found; try other words"


@dataclass(frozen=True)
class Search:
    """Looks words up in a corpus or in a MediaWiki site such as Wikipedia."""

    name: str = "search"
    corpus: str = parameter("", "documents of yours that are searched: a dataset of that kind")
    api_url: str = parameter(
        "", f"or a MediaWiki site's api.php, such as {WIKIPEDIA}", max_length=500
    )
    num_results: int = parameter(2, "documents that are told", low=1, high=20)
    max_characters: int = parameter(300, "of each document that are told", low=50, high=10_000)

    description: ClassVar[str] = "words to look up in an encyclopedia"
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "words to look up"}},
        "required": ["query"],
    }
    examples: ClassVar[tuple[tuple[str, str, str, str], ...]] = (
        (
            "Which river flows through the capital of Austria?",
            "capital of Austria river",
            "Vienna: Vienna is the capital of Austria. It lies on the Danube.",
            "the Danube",
        ),
        (
            "Who wrote the novel that the film Blade Runner is based on?",
            "Blade Runner film novel",
            "Blade Runner: Blade Runner is a 1982 film based on the novel Do Androids Dream of"
            " Electric Sheep? by Philip K. Dick.",
            "Philip K. Dick",
        ),
    )

    def check(self) -> dict[str, str]:
        """What is wrong with the parameters together, by name."""
        if self.corpus and self.api_url:
            return {"api_url": "Give a corpus or a site, not both."}
        if not self.corpus and not self.api_url:
            return {"corpus": f"Choose a corpus, or give a site in api_url, such as {WIKIPEDIA}."}
        return {}

    async def call(self, arguments: Mapping[str, Any], services: Services) -> str:
        """Titles and beginnings of the best documents. Raises: ToolError."""
        query = arguments["query"].strip()
        if not query:
            raise ToolError("write the words to look up")
        found = await self._found(query, services)
        return "\n".join(self._told(document) for document in found) or NOTHING

    async def _found(self, query: str, services: Services) -> list[Document]:
        try:
            if self.corpus:
                corpora = services.need("corpora")
                return await corpora.search(services.tenant, self.corpus, query, self.num_results)
            site = services.need("mediawiki")
        except GraderError as error:
            raise ToolError(str(error)) from error
        return await site.search(services.tenant, self.api_url, query, self.num_results)

    def _told(self, document: Document) -> str:
        text = " ".join(document.text.split())
        if len(text) > self.max_characters:
            text = text[: self.max_characters].rsplit(" ", 1)[0] + "…"
        return f"{document.title}: {text}"
