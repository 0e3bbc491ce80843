"""Searches a MediaWiki site, such as Wikipedia, politely.

Two calls of its Action API: `list=search` for the best titles, `prop=extracts` for how their pages
begin. All tasks of the process share one cache and one rate for each site, whoever asks; the same
question asked at once is asked once.
"""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from ..outbound import Outbound, OutboundError
from .corpus import Document
from .tool import ToolError

USER_AGENT = "MARLaaS/0.1 (self-hosted reinforcement learning; https://arxiv.org/abs/2605.08527)"
CALLS_PER_S = 5.0  # to one site from this process
CALL_TIMEOUT_S = 30.0  # retries included; the environment's own limit may be less
MAX_CACHED = 10_000  # answers
CACHED_S = 24 * 3600.0
MAX_QUERY_CHARACTERS = 300  # more is refused by Wikimedia
BUSY = ("maxlag", "ratelimited")  # errors that come with status 200 and pass
BUSY_TRIES, BUSY_PAUSE_S = 3, 1.0
_TAG = re.compile(r"<[^>]*>")

Key = tuple[str, str, int]


class MediaWiki:
    """One per process and event loop."""

    def __init__(self, outbound: Outbound, calls_per_s: float = CALLS_PER_S) -> None:
        self._outbound = outbound
        self._pause_s = 1.0 / calls_per_s
        self._next_at: dict[str, float] = {}  # by site (loop time)
        self._cache: OrderedDict[Key, tuple[float, list[Document]]] = OrderedDict()
        self._asked: dict[Key, asyncio.Task[list[Document]]] = {}

    async def search(self, tenant: str, api_url: str, query: str, limit: int) -> list[Document]:
        """The best pages and how they begin, best first. Raises: ToolError."""
        key = (api_url, " ".join(query.split())[:MAX_QUERY_CHARACTERS], limit)
        if (found := self._cached(key)) is not None:
            return found
        if key not in self._asked:
            self._asked[key] = asyncio.ensure_future(self._ask(tenant, *key))
            self._asked[key].add_done_callback(lambda _: self._asked.pop(key, None))
        try:
            return await asyncio.shield(self._asked[key])
        except OutboundError as error:
            raise ToolError(str(error)) from error

    def _cached(self, key: Key) -> list[Document] | None:
        until, found = self._cache.get(key, (0.0, []))
        if time.monotonic() > until:
            return None
        self._cache.move_to_end(key)
        return found

    async def _ask(self, tenant: str, api_url: str, query: str, limit: int) -> list[Document]:
        hits = await self._hits(tenant, api_url, query, limit)
        titles = [hit["title"] for hit in hits]
        extracts = await self._extracts(tenant, api_url, titles) if titles else {}
        found = [
            Document(hit["title"], extracts.get(hit["title"]) or _plain(hit.get("snippet", "")))
            for hit in hits
        ]
        self._cache[api_url, query, limit] = (time.monotonic() + CACHED_S, found)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return found

    async def _hits(
        self, tenant: str, api_url: str, query: str, limit: int
    ) -> list[dict[str, Any]]:
        answer = await self._query(
            tenant, api_url, {"list": "search", "srsearch": query, "srlimit": str(limit)}
        )
        hits = answer.get("search", [])
        if not isinstance(hits, list):
            raise ToolError("the site's answer is not that of a MediaWiki search")
        good = [hit for hit in hits if isinstance(hit, dict) and isinstance(hit.get("title"), str)]
        return good[:limit]

    async def _extracts(self, tenant: str, api_url: str, titles: list[str]) -> dict[str, str]:
        """How pages begin, by the titles asked for; those without one are left out."""
        answer = await self._query(
            tenant,
            api_url,
            {
                "prop": "extracts",
                "exintro": "1",
                "explaintext": "1",
                "exlimit": str(min(20, len(titles))),
                "redirects": "1",
                "titles": "|".join(titles),
            },
        )
        pages = answer.get("pages", {})
        pages = pages.values() if isinstance(pages, dict) else pages
        texts = {
            page["title"]: page["extract"]
            for page in pages
            if isinstance(page, dict) and isinstance(page.get("extract"), str) and "title" in page
        }
        renamed = _renamed(answer)
        return {title: texts.get(renamed.get(title, title), "") for title in titles}

    async def _query(
        self, tenant: str, api_url: str, parameters: Mapping[str, str]
    ) -> dict[str, Any]:
        """What `query` holds. Raises: ToolError, OutboundError."""
        url = f"{api_url}?{urlencode({'action': 'query', 'format': 'json', **parameters})}"
        for attempt in range(1, BUSY_TRIES + 1):
            await self._turn(api_url)
            answer = await self._outbound.request(
                tenant,
                "GET",
                url,
                headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
                timeout_s=CALL_TIMEOUT_S,
                may_repeat=True,
                max_redirects=1,
            )
            if not answer.is_ok:
                raise ToolError(f"the site answers with status {answer.status}")
            data = answer.json()
            if not isinstance(data, dict):
                raise ToolError("the site's answer is not that of a MediaWiki API")
            error = data.get("error")
            if not isinstance(error, dict):
                query = data.get("query", {})
                return query if isinstance(query, dict) else {}
            if error.get("code") not in BUSY or attempt == BUSY_TRIES:
                raise ToolError("the site refuses the search")
            await asyncio.sleep(BUSY_PAUSE_S * attempt)
        raise AssertionError("the loop returns or raises")

    async def _turn(self, api_url: str) -> None:
        """Wait until the site may be called again."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._next_at.get(api_url, 0.0))
        self._next_at[api_url] = at + self._pause_s
        await asyncio.sleep(at - now)


def _renamed(answer: Mapping[str, Any]) -> dict[str, str]:
    """What the site made of titles: normal forms, then the ends of redirects."""
    found: dict[str, str] = {}
    for step in ("normalized", "redirects"):
        changes = answer.get(step, [])
        moves = {
            change["from"]: change["to"]
            for change in (changes if isinstance(changes, list) else [])
            if isinstance(change, dict) and "from" in change and "to" in change
        }
        found = {title: moves.get(to, to) for title, to in found.items()} | {
            title: to for title, to in moves.items() if title not in found
        }
    return found


def _plain(snippet: str) -> str:
    """A snippet without its marks."""
    return html.unescape(_TAG.sub("", snippet))
