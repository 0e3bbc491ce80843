"""Shares of device-seconds over many plans, by the shipped planner on a cluster always busy."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace

from engine.manager import plan
from engine.manager.fairness import Flow, VirtualTimes
from engine.manager.snapshot import DispatchGroup, GroupView, TaskView, TenantView, Whereabouts

from .snapshots import NOW, ROLLOUT, open_step, snapshot, task, tenant, worker
from .snapshots import waiting as _waiting

ANOTHER = worker("r2#1", "rollout", base_models=("another",), slots=8)


@dataclass
class Stand:
    """Serves groups in order of dispatch; a task's finished group is followed by a new one."""

    tenants: dict[str, TenantView]
    tasks: dict[str, TaskView]
    slots: int = 8
    served: Counter[str] = field(default_factory=Counter)  # device-seconds by tenant
    by_task: Counter[str] = field(default_factory=Counter)
    flying: deque[tuple[str, str]] = field(default_factory=deque)

    def serve(self, num_groups: int) -> None:
        for _ in range(num_groups):
            self._dispatch()
            self._finish(*self.flying.popleft())

    def _dispatch(self) -> None:
        view = snapshot(
            *self.tasks.values(),
            tenants=tuple(self.tenants.values()),
            workers=(replace(ROLLOUT, slots=self.slots), ANOTHER),
        )
        for command in plan(view):
            if isinstance(command, DispatchGroup):
                owner = self.tasks[command.task].tenant
                self.served[owner] += command.cost
                self.by_task[command.task] += command.cost
                self.tenants[owner] = replace(
                    self.tenants[owner],
                    virtual_time=command.virtual_time,
                    last_start=command.last_start,
                )
                self.tasks[command.task] = replace(
                    self.tasks[command.task],
                    virtual_time=command.task_virtual_time,
                    last_start=command.task_last_start,
                )
                self._set(command.task, command.group, "dispatched")
                self.flying.append((command.task, command.group))

    def _finish(self, task_id: str, group: str) -> None:
        self._set(task_id, group, "waiting")

    def _set(self, task_id: str, group_id: str, state: str) -> None:
        places = (Whereabouts("worker:r#1", NOW, 4),) if state == "dispatched" else ()
        view = self.tasks[task_id]
        groups = tuple(
            GroupView(g.id, g.index, state, dispatched_at=NOW, whereabouts=places)
            if g.id == group_id
            else g
            for g in view.steps[0].groups
        )
        self.tasks[task_id] = replace(view, steps=(open_step(*groups),))


def busy_task(id: str, owner: str, **fields: object) -> TaskView:
    groups = [GroupView(f"{id}.{index}", index, "waiting") for index in range(6)]
    return task(id, tenant=owner, step=open_step(*groups), **fields)


def stand(tenants: list[TenantView], tasks: list[TaskView], slots: int = 8) -> Stand:
    return Stand({t.id: t for t in tenants}, {t.id: t for t in tasks}, slots)


def test_weights_two_to_one_give_tokens_two_to_one() -> None:
    there = stand(
        [tenant("heavy", weight=2.0), tenant("light", weight=1.0)],
        [busy_task("h", "heavy"), busy_task("l", "light")],
    )
    there.serve(300)
    assert abs(there.served["heavy"] / there.served["light"] - 2.0) < 0.05


def test_shares_are_in_tokens_not_in_groups() -> None:
    there = stand(
        [tenant("long"), tenant("short")],
        [busy_task("l", "long", group_cost=500), busy_task("s", "short", group_cost=50)],
    )
    there.serve(500)
    assert abs(there.served["long"] / there.served["short"] - 1.0) < 0.05


def test_ten_tasks_do_not_get_ten_shares() -> None:
    flood = [busy_task(f"f{i}", "flooder") for i in range(10)]
    there = stand([tenant("flooder"), tenant("modest")], [*flood, busy_task("m", "modest")])
    there.serve(400)
    assert abs(there.served["flooder"] / there.served["modest"] - 1.0) < 0.05


def test_the_tasks_of_one_tenant_share_alike() -> None:
    """11 slots: 16 sequences, 4 groups in flight, 2 for each task."""
    there = stand([tenant("a")], [busy_task("t1", "a"), busy_task("t2", "a")], slots=11)
    there.serve(100)
    assert abs(there.by_task["t1"] - there.by_task["t2"]) <= 200


def test_idle_time_is_not_hoarded() -> None:
    """The idle tenant comes back a million tokens behind, and gets half from then on."""
    for slots in (2, 8, 64):
        there = stand(
            [tenant("idle"), tenant("busy", virtual_time=1e6, last_start=1e6)],
            [busy_task("i", "idle"), busy_task("b", "busy")],
            slots,
        )
        there.serve(100)
        assert abs(there.served["idle"] / there.served["busy"] - 1.0) < 0.1, slots


def test_the_floor_is_the_start_of_the_furthest_tenants_last_group() -> None:
    """far began at 1050 and was charged less since; of its 1000, 100 / 2 may have been one step:
    near is raised to 950, middle keeps its 970."""
    flows = [Flow("far", 1000.0, 2.0, last_start=1050.0), Flow("near", 10.0), Flow("middle", 970.0)]
    times = VirtualTimes(flows, {"far": 100, "near": 100, "middle": 20})
    assert [times.place(name)[0] for name in ("far", "near", "middle")] == [1000.0, 950.0, 970.0]
    assert min(["far", "near", "middle"], key=times.place) == "near"
    assert times.charge("near", 100) == (1050.0, 950.0)
    assert min(["far", "near", "middle"], key=times.place) == "middle"


def test_of_flows_that_are_raised_the_one_furthest_behind_goes_first() -> None:
    """Both are raised to 900; served once, b stands behind a."""
    flows = [Flow("far", 1000.0, last_start=1000.0), Flow("a", 20.0), Flow("b", 10.0)]
    times = VirtualTimes(flows, dict.fromkeys(("far", "a", "b"), 100.0))
    assert min(["far", "a", "b"], key=times.place) == "b"
    assert times.charge("b", 100.0) == (1000.0, 900.0)
    assert min(["far", "a", "b"], key=times.place) == "a"


def test_a_weight_of_zero_stops_nothing() -> None:
    times = VirtualTimes([Flow("zero", 0.0, weight=0.0)], {"zero": 10})
    assert times.charge("zero", 10) == (1e7, 0.0)


def test_a_debt_is_not_forgiven_by_the_floor() -> None:
    """debtor began at 30, was charged 10, and owes 900 more since: the others stay where they are,
    and are served till they stand where it does."""
    flows = [Flow("debtor", 940.0, last_start=30.0), Flow("a", 35.0), Flow("b", 20.0)]
    times = VirtualTimes(flows, dict.fromkeys(("debtor", "a", "b"), 0.0))
    assert [times.place(name)[0] for name in ("debtor", "a", "b")] == [940.0, 35.0, 30.0]


def test_one_that_was_charged_too_much_lifts_nobody_above_itself() -> None:
    """It began at 500, and 450 of what it was charged came back: it is served first."""
    flows = [Flow("back", 60.0, last_start=500.0), Flow("other", 300.0, last_start=290.0)]
    times = VirtualTimes(flows, dict.fromkeys(("back", "other"), 0.0))
    assert [times.place(name)[0] for name in ("back", "other")] == [290.0, 300.0]


def test_a_dispatch_that_passed_somebody_over_proves_no_start() -> None:
    times = VirtualTimes([Flow("a", 50.0, last_start=40.0)], {"a": 0.0})
    assert times.charge("a", 10.0, is_least=False) == (60.0, 40.0)
    assert times.charge("a", 10.0) == (70.0, 60.0)


def test_weights_hold_beside_one_that_keeps_another_base_model_busy_alone() -> None:
    """alone stands at 1000 on its base model; on the other one, heavy has three groups for each of
    light's, as though there were nobody else."""
    there = stand(
        [
            tenant("heavy", weight=3.0, virtual_time=10.0),
            tenant("light", virtual_time=10.0),
            tenant("alone", virtual_time=1000.0, last_start=990.0),
        ],
        [
            busy_task("h", "heavy"),
            busy_task("l", "light"),
            busy_task("x", "alone", base_model="another"),
        ],
    )
    there.serve(300)
    assert abs(there.served["heavy"] / there.served["light"] - 3.0) < 0.1


def test_what_a_plan_charges_on_one_base_model_counts_on_the_next() -> None:
    """both is charged 100 for its group on m1, so on m2 other goes first, at 50."""
    tasks = [
        task("b1", tenant="both", base_model="m1", batch_size=1, step=open_step(_waiting("b1"))),
        task("b2", tenant="both", base_model="m2", batch_size=1, step=open_step(_waiting("b2"))),
        task("o", tenant="other", base_model="m2", batch_size=1, step=open_step(_waiting("o"))),
    ]
    tenants = (tenant("both"), tenant("other", virtual_time=50.0))
    workers = tuple(worker(f"r-{m}#1", "rollout", base_models=(m,), slots=8) for m in ("m1", "m2"))
    commands = plan(snapshot(*tasks, tenants=tenants, workers=workers))
    sent = [c for c in commands if isinstance(c, DispatchGroup)]
    assert [(c.task, c.virtual_time, c.last_start) for c in sent] == [
        ("b1", 100.0, 0.0),
        ("o", 150.0, 50.0),
        ("b2", 200.0, 100.0),
    ]
