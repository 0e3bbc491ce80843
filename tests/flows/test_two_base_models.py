"""Two base models at once: each task's groups run only on the workers of its base model."""

from collections.abc import Callable

import pytest

from tests.conftest import Owner
from tests.flows.stories import check_provenance, submit

pytestmark = pytest.mark.flow


def test_groups_run_only_on_workers_of_their_base_model(make_owner: Callable[[str], Owner]) -> None:
    tenants = {"tiny-a": make_owner("first").client, "tiny-b": make_owner("second").client}
    tasks = {
        base: submit(tenant, f"on {base}", base, max_steps=3) for base, tenant in tenants.items()
    }
    for base, tenant in tenants.items():
        over = tenant.wait(f"tasks/{tasks[base]}", timeout_s=120)
        assert over["state"] == "succeeded", over["reason"]
        spans = list(tenant.pages(f"tasks/{tasks[base]}/spans"))
        rollouts = {span["worker"] for span in spans if span["stage"] == "rollout"}
        assert rollouts == {f"rollout-{base}"}
        assert {span["stage"] for span in spans} == {"rollout", "environment", "training"}
        assert check_provenance(tenant, tasks[base]) == 3 * 2 * 4
