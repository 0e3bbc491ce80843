"""What pages ask of the environment worker: to try reward functions, to check Python source, and to
list the tools of MCP servers.

An errand runs in the worker's event loop beside the episodes, with the same services, and its
answer goes to the one who waits. It is not retried: who waits asks again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from engine.environments import ToolError
from engine.environments.mcp_tools import list_tools
from engine.rewards import Grader, Sample, Services, grade, is_pure, parse_graders
from engine.rewards.python_source import PythonSource
from jobs.services.errands import reply
from jobs.services.mcp_servers import as_answer
from jobs.services.secrets import named_secrets, secrets_of
from marlaas_site.celery import app

from . import environment
from .environment import EnvironmentHost

MAX_ERRANDS = 16  # in one worker at once
MAX_ERRANDS_OF_TENANT = 4
SPARE_S = 1.0  # for the answer to get back
BUSY = "Too many reward functions are being tried; try again in a minute."

log = logging.getLogger(__name__)
_under_way: Counter[str] = Counter()  # by tenant; used in the event loop alone

Scores = list[dict[str, Any]]


@app.task(name="environment.errand")
def errand(message: dict[str, Any]) -> None:
    """Begin an errand and return: it holds no thread."""
    host = environment.host()
    host.begin(_run(host, message))


async def _run(host: EnvironmentHost, message: dict[str, Any]) -> None:
    """Answer, whatever happens, unless nobody waits any more."""
    left_s = message["ends_at"] - SPARE_S - time.time()
    if left_s <= 0:
        return
    tenant = message["tenant"]
    if _under_way.total() >= MAX_ERRANDS or _under_way[tenant] >= MAX_ERRANDS_OF_TENANT:
        answer: dict[str, Any] = {"error": BUSY}
    else:
        _under_way[tenant] += 1
        try:
            answer = await _answer(host, message, left_s)
        finally:
            _under_way[tenant] -= 1
    await host.apart(reply, message["key"], answer)


async def _answer(host: EnvironmentHost, message: dict[str, Any], left_s: float) -> dict[str, Any]:
    try:
        question = json.loads(message["question"])
        async with asyncio.timeout(left_s):
            work = KINDS[message["kind"]]
            return {"result": await work(host, message["tenant"], question, left_s)}
    except TimeoutError:
        return {"error": f"It was not done within {left_s:.0f} s. Try less at once."}
    except Exception:
        log.exception("errand %s failed", message["kind"])
        return {"error": "This is a fault of the service; its log says more."}


async def _check(
    host: EnvironmentHost, tenant: str, question: dict[str, Any], left_s: float
) -> dict[str, Any]:
    """What is wrong with a source before its function is called."""
    sandboxes = host.services_of(tenant).need("sandboxes")
    problem = await sandboxes.check(tenant, question["source"])
    if problem is None:
        return {"problem": None}
    return {"problem": {"message": _plain(problem.message), "line": problem.line}}


async def _try(
    host: EnvironmentHost, tenant: str, question: dict[str, Any], left_s: float
) -> dict[str, Any]:
    """Each reward function's score of each sample, with time, and what its Python printed."""
    graders = parse_graders(question["graders"])
    samples = [Sample(one["completion"], one["row"]) for one in question["samples"]]
    secrets = await host.apart(secrets_of, tenant, named_secrets(question["graders"]))
    services = replace(host.services_of(tenant), secrets=secrets)
    found = await asyncio.gather(
        *(_within(left_s - SPARE_S, grader, samples, services) for grader in graders)
    )
    rows = list(zip(*(scores for scores, _ in found), strict=True))
    return {
        "graders": [
            {"name": grader.name, "weight": grader.weight, "output": _plain(output)}
            for grader, (_, output) in zip(graders, found, strict=True)
        ],
        "samples": [{"reward": _total(graders, row), "scores": list(row)} for row in rows],
    }


async def _within(
    limit_s: float, grader: Grader, samples: list[Sample], services: Services
) -> tuple[Scores, str]:
    """One reward function's scores and output; one that takes too long costs only itself."""
    try:
        async with asyncio.timeout(limit_s):
            if isinstance(grader, PythonSource):
                return await _python(grader, samples, services)
            if is_pure(grader):  # one after the other, so that each has its own time
                return [await _one(grader, sample, services) for sample in samples], ""
            scores = await asyncio.gather(*(_one(grader, one, services) for one in samples))
            return list(scores), ""
    except TimeoutError:
        late = f"unresponsive_reward_error: not all samples were scored within {limit_s:.0f} s"
        return [_score(grader, None, late, None, limit_s)] * len(samples), ""


async def _one(grader: Grader, sample: Sample, services: Services) -> dict[str, Any]:
    started = time.perf_counter()
    result = await grade([grader], sample, services)
    error = result.error.removeprefix(f"{grader.name}: ")
    duration_s = time.perf_counter() - started
    return _score(grader, result.rewards[grader.name], error, None, duration_s)


async def _python(
    grader: PythonSource, samples: list[Sample], services: Services
) -> tuple[Scores, str]:
    """All samples in one go, as a group is graded; each has its share of the time."""
    started = time.perf_counter()
    calls = [grader.call_of(sample) for sample in samples]
    trial = await services.need("sandboxes").trial(services.tenant, grader.source, calls)
    share_s = (time.perf_counter() - started) / len(samples)
    scores = [_score(grader, one.value, one.error, one.line, share_s) for one in trial.scores]
    return scores, trial.output


async def _list_tools(
    host: EnvironmentHost, tenant: str, question: dict[str, Any], left_s: float
) -> list[dict[str, Any]]:
    """{"tools": […]} or {"error": sentence} of each server."""
    servers = question["servers"]
    secrets = await host.apart(secrets_of, tenant, named_secrets(servers))
    services = replace(host.services_of(tenant), secrets=secrets)
    return await asyncio.gather(*(_listed(server, services) for server in servers))


async def _listed(server: dict[str, str], services: Services) -> dict[str, Any]:
    try:
        return as_answer(await list_tools(server["url"], server["secret"], services))
    except ToolError as error:
        return {"error": _plain(str(error))}


def _score(
    grader: Grader, value: float | None, error: str, line: int | None, duration_s: float
) -> dict[str, Any]:
    return {
        "name": grader.name,
        "score": value,
        "error": _plain(error),
        "line": line,
        "duration_us": round(duration_s * 1e6),
    }


def _total(graders: tuple[Grader, ...], scores: tuple[dict[str, Any], ...]) -> float | None:
    """The weighted sum; None if one with a weight gave no score, as in training."""
    total = 0.0
    for grader, score in zip(graders, scores, strict=True):
        if score["score"] is None:
            if grader.weight:
                return None
        else:
            total += grader.weight * score["score"]
    return total


def _plain(text: str) -> str:
    """Without halves of surrogate pairs, which no response can carry."""
    return text.encode("utf-8", "replace").decode()


KINDS: dict[str, Callable[..., Awaitable[Any]]] = {
    "check": _check,
    "list_tools": _list_tools,
    "try": _try,
}
