"""A process that makes rows with reasoning-gym and writes them as JSON lines. Runs as a script.

Arguments: task, seed, size. A row has what its scorer is given: question, answer, metadata; and how
to make it again. Tasks with many right answers have none to store. The last line of stderr tells
why nothing came.
"""

from __future__ import annotations

import json
import resource
import sys

CPU_S = 900
MEMORY_BYTES = 4 * 2**30  # of address space; the libraries alone take one


def main(task: str, seed: int, size: int) -> None:
    """Write the rows. Exits with 1 and a sentence if there are none."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        sys.exit("reasoning-gym is not installed here: ask the operator for the extra 'reasoning'.")

    if task not in DATASETS or task == "composite":
        sys.exit(f"There is no task {task!r} in reasoning-gym; there are: {', '.join(DATASETS)}.")
    made = reasoning_gym.create_dataset(task, seed=seed, size=size)
    entries = [made[index] for index in range(size)]
    has_answers = all(entry["answer"] is not None for entry in entries)
    for index, entry in enumerate(entries):
        row = {"question": entry["question"], "metadata": entry["metadata"]}
        if has_answers:
            row["answer"] = entry["answer"]
        row["reasoning_gym"] = {"task": task, "seed": seed, "size": size, "index": index}
        print(json.dumps(row, default=str))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
