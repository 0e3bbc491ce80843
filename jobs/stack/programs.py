"""The programs of a stack: what runs, with which arguments and environment.

The queue settings behind the arguments are explained in docs/architecture.md, "Queues".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .redis_server import redis_command

QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
ENVIRONMENT_THREADS = 32  # they hand episodes over, and do chores


@dataclass(frozen=True)
class Program:
    """One process that the supervisor keeps alive."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stop_wait_s: int = 15  # from SIGTERM to SIGKILL; they need two, on a busy machine more
    stops_last: bool = False  # others talk to it while they stop


def stack_programs(
    base_models: Sequence[str],
    host: str,
    port: int,
    redis_port: int | None,
    redis_dir: str,
    rollout_workers: int = 1,
) -> list[Program]:
    """All programs of one machine. redis_port: None if Redis runs elsewhere.

    rollout_workers: of each base model.
    """
    return [
        *([] if redis_port is None else [redis(redis_port, redis_dir)]),
        web(host, port),
        *(
            rollout(slug, rollout_name(slug, number), rollout_workers)
            for slug in base_models
            for number in range(1, rollout_workers + 1)
        ),
        *([training(base_models)] if base_models else []),
        environment(),
        planning(),
        beat(),
    ]


def redis(port: int, directory: str) -> Program:
    return Program("redis", tuple(redis_command(port, directory)), stops_last=True)


def web(host: str, port: int) -> Program:
    """uvicorn, one process. A page sends nothing larger than 64 KiB over its socket."""
    options = {
        "--host": host,
        "--port": str(port),
        "--lifespan": "off",
        "--ws-max-size": "65536",
        "--ws-ping-interval": "20",
        "--timeout-graceful-shutdown": "5",
        "--log-level": "warning",
    }
    words = [word for pair in options.items() for word in pair]
    command = (sys.executable, "-m", "uvicorn", "marlaas_site.asgi:application", *words)
    return Program("web", command, {"OMP_NUM_THREADS": "1"})


def rollout(slug: str, name: str, num_beside: int = 1) -> Program:
    """An engine of a base model. It is handed sequences and does no more, so few threads do.

    name: of the worker, its own among all that use the same Redis. num_beside: as many of them
    share the cores of this machine.
    """
    queues = f"rollout.{slug},rollout.{slug}.{name}"
    env = torch_env()
    for threads in ("OMP_NUM_THREADS", "TORCH_THREADS"):
        if threads not in os.environ:
            env[threads] = str(max(1, int(env[threads]) // num_beside))
    return _worker("rollout", name, queues, ("-P", "threads", "-c", "4"), [slug], env)


def rollout_name(slug: str, number: int = 1) -> str:
    """Of the first, second, … rollout worker of a base model; no slug has a dot in it."""
    return f"rollout-{slug}" if number == 1 else f"rollout-{slug}.{number}"


def training(base_models: Sequence[str]) -> Program:
    """One pass at a time; solo fetches nothing ahead, so the order of the queue is exact."""
    queues = ",".join(f"training.{slug}" for slug in base_models)
    return _worker("training", "training", queues, ("-P", "solo"), base_models, torch_env())


def environment() -> Program:
    pool = ("-P", "threads", "-c", str(ENVIRONMENT_THREADS))
    return _worker("environment", "environment", "environment,chores", pool, [], small_env())


def planning() -> Program:
    return _worker("planning", "planning", "planning", ("-P", "solo"), [], small_env())


def beat() -> Program:
    command = (*_celery(), "beat", "-l", "WARNING")
    return Program("beat", command, small_env())


def _worker(
    kind: str,
    name: str,
    queues: str,
    pool: Sequence[str],
    base_models: Sequence[str],
    env: Mapping[str, str],
) -> Program:
    command = (*_celery(), "worker", "-n", f"{name}@%h", "-Q", queues, *pool, *QUIET)
    own = {
        "MARLAAS_WORKER_KIND": kind,
        "MARLAAS_WORKER_NAME": name,
        "MARLAAS_BASE_MODELS": ",".join(base_models),
    }
    return Program(name, command, {**env, **own})


def _celery() -> tuple[str, ...]:
    return (sys.executable, "-m", "celery", "-A", "marlaas_site.celery")


def small_env() -> dict[str, str]:
    """For processes that calculate little."""
    return {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}


def torch_env() -> dict[str, str]:
    """For processes that calculate. What the operator set himself stays.

    Rollout and training run side by side. Up to 4 cores each may use all of them, for one often
    waits for the other; with more, each takes half. Idle threads soon sleep instead of spinning, or
    two processes on the same cores would slow each other several times over.
    """
    cores = num_cores()
    threads = str(cores if cores <= 4 else cores // 2)
    chosen = {
        "OMP_NUM_THREADS": threads,
        "TORCH_THREADS": threads,
        "GOMP_SPINCOUNT": "1000",  # turns: waking a thread takes longer than most pauses
        "KMP_BLOCKTIME": "0",
        # Huge pages for what tensors take: a decode step reads hundreds of MiB, and with small
        # ones takes twice as long in a virtual machine.
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # engine/models/device.py decides what is loaded
        "MALLOC_ARENA_MAX": "2",
        # Keep what tensors free: giving it back costs 12,000 page faults a decode step.
        "MALLOC_MMAP_THRESHOLD_": "2000000000",
        "MALLOC_TRIM_THRESHOLD_": "2000000000",
        "MALLOC_TOP_PAD_": "67108864",
        # oneDNN and torch's layer above it each keep the kernels of 1,024 shapes, a quarter of a
        # MiB each, and every new number of rows is some more of them. A step uses a few dozen.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
        "LRU_CACHE_CAPACITY": "256",
    }
    return {name: os.environ.get(name, value) for name, value in chosen.items()}


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
