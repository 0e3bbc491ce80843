"""Who hosts an episode sees what it waits for; episodes do not see each other's."""

import asyncio

from engine.environments.activity import Activity, waiting_for, watch


def test_the_inner_wait_is_told_while_it_lasts_and_then_the_outer_one() -> None:
    activity, seen = Activity(), []

    async def episode() -> None:
        watch(activity)
        with waiting_for("environment"):
            outer = activity.since
            with waiting_for("tool search"):
                await asyncio.sleep(0)
                seen.append(activity.what)
            seen.append(activity.what)
            assert activity.since >= outer
        seen.append(activity.what)

    asyncio.run(episode())
    assert seen == ["tool search", "environment", ""]


def test_episodes_in_one_loop_have_each_their_own() -> None:
    async def episode(activity: Activity, what: str) -> str:
        watch(activity)
        with waiting_for(what):
            await asyncio.sleep(0.01)
            return activity.what

    async def both() -> list[str]:
        names = ("tool a", "tool b")
        return list(await asyncio.gather(*(episode(Activity(), name) for name in names)))

    assert asyncio.run(both()) == ["tool a", "tool b"]


def test_a_wait_that_nobody_watches_is_no_fault() -> None:
    with waiting_for("grading"):
        pass
