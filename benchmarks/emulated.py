"""What orchestration itself costs: the real stack in real time, on engines that only take time.

Celery, Redis, database, Channels and web run as `manage.py run` starts them. Engine, trainer and
tools take the time that the cost model says (engine/emulation), and the same tasks under the same
policy are simulated beside it: what differs is what messages, rows and joins cost. Sequential is
the sum of solo runs, one of each kind of task. The planner is timed where it runs, and by itself.

usage: python -m benchmarks.emulated [--quick] [--tasks 32] [--steps 3] [--scale 1.5]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import planner
from benchmarks.campaign import Campaign, Record, Rows, Submission
from benchmarks.ending import leave_in_order
from benchmarks.figures import IMAGES, swim_lanes
from benchmarks.processor import CONTROL, Processor, control_cores
from benchmarks.report import Row, at_most, publish
from benchmarks.schedule_figures import Figures, compared, figures, in_model_time
from benchmarks.stand_ins.timed_planner import SETTING as PLAN_TIMES
from benchmarks.stand_ins.timed_planner import read_times
from engine.emulation.script import make_script, prompt_row, write_script
from engine.manager.policy import PAPER, POLICIES, SEQUENTIAL, Policy
from engine.simulation.performance.cost_models import FIRST_MODEL
from engine.simulation.performance.metrics import TaskTime
from engine.simulation.performance.run import Run, run
from engine.simulation.performance.workload import MIX, TaskSpec, mixed_tasks
from jobs.stack.stack import Stack
from tests.tiny import build_tiny_model

BASE = "emulated"
MODEL_LENGTH = 8192
TIMEOUT_S = 3600.0
PLAN_BAR_MS = 20.0
CONTROL_BAR = 0.5  # cores
LANES_S = (200.0, 320.0)  # of the run, for the swim lanes
BEST_TOKENS_PER_S = FIRST_MODEL.engine.best_tokens_per_s
GRADERS = [{"type": "numeric", "name": "answer", "target": "answer", "which": "last"}]


@dataclass(frozen=True)
class Played:
    """A run of the stack, in the model's seconds, and what it took."""

    record: Record
    cores: dict[str, float]  # by program
    plan_s: list[float]  # of plan() alone
    plan_once_s: list[float]  # with reading and writing
    num_generated_again: int  # groups, because they seemed lost

    @property
    def figures(self) -> Figures:
        found = self.record
        return figures(found.steps, found.tasks, found.spans, BEST_TOKENS_PER_S)


def play(tasks: Sequence[TaskSpec], scale: float, policy: Policy, folder: Path) -> Played:
    """Run the tasks on a stack of their own, in a new folder."""
    folder.mkdir()
    script, times = folder / "script.json", folder / "plans.txt"
    write_script(make_script(tasks, FIRST_MODEL, scale), script)
    model = build_tiny_model(folder / BASE, max_position_embeddings=MODEL_LENGTH)
    env = {
        "MARLAAS_EMULATION": str(script),
        "MARLAAS_SCHEDULE_POLICY": policy.name,
        PLAN_TIMES: str(times),
        "ENVIRONMENT_CLASSES": "emulated_tools=benchmarks.stand_ins.timed_planner:EmulatedTools",
        "ROLLOUT_SLOTS": str(FIRST_MODEL.engine.slots),
        "OMP_NUM_THREADS": "1",
        "TORCH_THREADS": "1",
    }
    print(f"{len(tasks)} tasks, {policy.name}: starting the stack", flush=True)
    with Stack(folder / "var", env, {BASE: str(model)}) as stack:
        stack.manage("add_base_model", BASE, str(model), f"--max-model-length={MODEL_LENGTH}")
        campaign = Campaign(stack, BASE)
        campaign.submit([_submission(number, task) for number, task in enumerate(tasks)])
        times.write_text("")  # of idle plans
        campaign.begin()
        processor = Processor(stack)
        record = campaign.follow(TIMEOUT_S, every=max(1, len(tasks) // 2))
        cores = processor.cores()
        again = Rows(stack.layout.var / "db.sqlite3").num_generated_again()
    found = read_times(times)
    return Played(in_model_time(record, scale), cores, found["plan"], found["plan_once"], again)


def _submission(number: int, task: TaskSpec) -> Submission:
    rows = [
        {
            "messages": [{"role": "user", "content": f"Prompt {prompt}."}],
            "answer": "1",
            **prompt_row(number, prompt, task.batch_size),
        }
        for prompt in range(task.batch_size)
    ]
    config: dict[str, Any] = {
        "batch_size": task.batch_size,
        "group_size": task.group_size,
        "max_steps": task.num_steps,
        "max_completion_length": 4224,  # 4096 at most, and answers of tools
        "lora_rank": 1,
        "target_modules": ["q_proj"],
        "seed": number,
        "environment": "emulated_tools" if task.kind.turns > 1 else "single_turn",
        "max_turns": task.kind.turns,
    }
    return Submission(task.id, rows, config, GRADERS)


def simulated_figures(found: Run) -> Figures:
    return figures(found.steps, found.tasks, found.spans, BEST_TOKENS_PER_S)


def solo_s(tasks: Sequence[TaskTime]) -> dict[str, float]:
    """By kind, of tasks of one step each that ran one after the other."""
    began = min(task.submitted_at for task in tasks)
    found = {}
    for task in sorted(tasks, key=lambda task: task.ended_at):
        found[task.kind] = task.ended_at - began
        began = task.ended_at
    return found


def gains(
    tasks: Sequence[TaskSpec], together_s: float, solo: dict[str, float]
) -> tuple[float, float]:
    """(times the steps an hour of one task after the other, share of their time that is saved)."""
    alone_s = sum(solo[task.kind.name] * task.num_steps for task in tasks)
    return alone_s / together_s, 1 - together_s / alone_s


def measure(options: argparse.Namespace, folder: Path) -> tuple[list[Row], dict[str, Any]]:
    """The rows, and what else the JSON line holds."""
    tasks, solo = mixed_tasks(options.tasks, options.steps), mixed_tasks(len(MIX), 1)
    policy = POLICIES[options.policy]
    together = play(tasks, options.scale, policy, folder / "together")
    alone = play(solo, options.scale, SEQUENTIAL, folder / "alone")
    if (options.tasks, options.steps) == (32, 3):
        title = f"{policy.name}, {options.tasks} tasks, emulated: two minutes of the run"
        path = IMAGES / f"emulated-{policy.name}.svg"
        swim_lanes(together.record.steps, together.record.spans, LANES_S, title, path)
    print("simulating the same", flush=True)
    simulated, simulated_alone = run(tasks, FIRST_MODEL, policy), run(solo, FIRST_MODEL, SEQUENTIAL)
    rows = [
        *compared(policy.name, together.figures, simulated_figures(simulated)),
        *compared("solo runs", alone.figures, simulated_figures(simulated_alone)),
        *_gain_rows(tasks, together, alone, simulated, simulated_alone),
        *planner.spread("plan() in the stack", together.plan_s, PLAN_BAR_MS),
        *planner.spread("plan_once() in the stack", together.plan_once_s, None),
        *planner.measure(options.planned_tasks, options.plans),
        at_most("control plane", control_cores(together.cores), "cores", CONTROL_BAR),
        *(Row(f"  {name}", value, "cores") for name, value in sorted(together.cores.items())),
        Row("groups generated again", together.num_generated_again, "groups"),
    ]
    return rows, {
        "scale": options.scale,
        "tasks": options.tasks,
        "steps": options.steps,
        "policy": policy.name,
        "control_programs": list(CONTROL),
        "plans": len(together.plan_s),
    }


def _gain_rows(
    tasks: Sequence[TaskSpec], together: Played, alone: Played, simulated: Run, simulated_alone: Run
) -> list[Row]:
    found = gains(tasks, together.figures.end_to_end_s, solo_s(alone.record.tasks))
    expected = gains(tasks, simulated.makespan_s, solo_s(simulated_alone.tasks))
    return [
        Row("steps an hour, over sequential", found[0], "times"),
        Row("  simulated", expected[0], "times"),
        Row("time saved", 100 * found[1], "%"),
        Row("  simulated", 100 * expected[1], "%"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="6 tasks of a step, for a look")
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument(
        "--scale", type=float, default=1.5, help="s of the clock to one of the model"
    )
    parser.add_argument("--policy", default=PAPER.name, choices=POLICIES)
    options = parser.parse_args()
    options.tasks = options.tasks or (6 if options.quick else 32)
    options.steps = options.steps or (1 if options.quick else 3)
    options.planned_tasks, options.plans = (1_000, 5 if options.quick else 200)
    leave_in_order()
    with tempfile.TemporaryDirectory(prefix="marlaas-emulated-") as folder:
        rows, more = measure(options, Path(folder))
    return 0 if publish("emulated", rows, **more) else 1


if __name__ == "__main__":
    sys.exit(main())
