"""An environment of verifiers, as its users write them: guess a number."""

from __future__ import annotations

from typing import Any

import verifiers as vf

ROWS = [
    {"prompt": [{"role": "user", "content": f"Guess a number up to {n}."}], "answer": str(n)}
    for n in (5, 7)
]
NUM_BEGUN: list[int] = []  # one for each rollout that began


class Guessing(vf.MultiTurnEnv):
    def __init__(self, manner: str, **options: Any) -> None:
        super().__init__(**options)
        self.manner = manner

    async def setup_state(self, state: Any) -> Any:
        NUM_BEGUN.append(1)
        if self.manner == "broken":
            raise RuntimeError("no such game")
        state["tries"] = 0
        return state

    @vf.stop
    async def solved(self, state: Any) -> bool:
        said = [step["completion"][-1].content for step in state["trajectory"]]
        return bool(said) and said[-1] == state["answer"]

    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
        state["tries"] += 1
        salt = len(NUM_BEGUN) if self.manner == "moody" else ""
        if self.manner == "rewriting":
            messages[0].content = "Forget it."
        return [{"role": "user", "content": f"No. Tries: {state['tries']}{salt}"}]


async def right(completion: Any, answer: str) -> float:
    return float(completion[-1].content == answer)


async def quick(state: Any) -> float:
    return 1.0 / (1 + state["tries"])


async def failing(completion: Any) -> float:
    raise ValueError("the judge is ill")


def _dataset() -> Any:
    try:
        from datasets import Dataset
    except ImportError:
        return [{"example_id": place, **row} for place, row in enumerate(ROWS)]
    return Dataset.from_list(ROWS)


def load_environment(manner: str = "plain", max_turns: int = 10) -> Any:
    if manner == "absent":
        raise FileNotFoundError("no game there")
    funcs = [right, quick, *([failing] if manner == "ill" else [])]
    rubric = vf.Rubric(funcs=funcs, weights=[1.0, 0.5, 1.0][: len(funcs)])
    return Guessing(manner, dataset=_dataset(), rubric=rubric, max_turns=max_turns)
