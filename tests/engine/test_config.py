"""Settings come checked, all errors at once, under the field's names."""

import pytest

from engine.config import ALIASES, FIELDS, TaskConfig, parse_config
from engine.errors import SpecError
from engine.models.architectures import LINEAR_MODULES


def errors_of(values: object) -> dict[str, list[str]]:
    with pytest.raises(SpecError) as caught:
        parse_config(values)  # type: ignore[arg-type]
    return caught.value.fields


def test_nothing_given_means_the_defaults() -> None:
    assert parse_config({}) == TaskConfig()


def test_numbers_may_come_as_text() -> None:
    config = parse_config({"learning_rate": "1e-4", "batch_size": " 4 ", "group_size": 16.0})
    assert (config.learning_rate, config.batch_size, config.group_size) == (0.0001, 4, 16)


def test_every_wrong_field_is_named_at_once() -> None:
    errors = errors_of(
        {
            "batch_size": 0,
            "learning_rate": "fast",
            "temperature": 0,
            "loss_type": "ppo",
            "group_size": 2.5,
            "beta": float("nan"),
            "seed": True,
            "max_steps": None,
        }
    )
    assert errors == {
        "batch_size": ["Must be at least 1, not 0."],
        "learning_rate": ["Must be a number, not 'fast'."],
        "temperature": ["Must be above 0.0, not 0.0."],
        "loss_type": ["Must be one of grpo, dr_grpo, dapo, not 'ppo'."],
        "group_size": ["Must be a whole number, not 2.5."],
        "beta": ["Must be a finite number, not nan."],
        "seed": ["Must be a number, not true."],
        "max_steps": ["Must be a number, not null."],
    }


def test_limits_themselves_are_allowed_and_the_next_value_is_not() -> None:
    assert parse_config({"batch_size": 512}).batch_size == 512
    assert errors_of({"batch_size": 513}) == {"batch_size": ["Must be at most 512, not 513."]}
    assert errors_of({"seed": 2**31}) == {
        "seed": ["Must be at most 2,147,483,647, not 2,147,483,648."]
    }


def test_numbers_of_many_digits_are_quoted_as_they_were_sent() -> None:
    many = 99999999999999999999999999
    assert errors_of({"batch_size": many}) == {"batch_size": [f"Must be at most 512, not {many}."]}
    assert errors_of({"batch_size": "1e308"}) == {
        "batch_size": ["Must be at most 512, not '1e308'."]
    }


def test_an_unknown_setting_names_the_nearest_known_one() -> None:
    assert errors_of({"learning_rat": 1}) == {
        "learning_rat": ["There is no setting 'learning_rat'. Did you mean learning_rate?"]
    }
    assert errors_of({"num_generation": 1}) == {
        "num_generation": ["There is no setting 'num_generation'. Did you mean group_size?"]
    }


def test_aliases_of_other_tools_mean_our_fields() -> None:
    config = parse_config({"num_generations": 4, "optim.lr": 1e-3, "clip_ratio_high": 0.3})
    assert (config.group_size, config.learning_rate, config.epsilon_high) == (4, 1e-3, 0.3)
    assert set(ALIASES.values()) <= set(FIELDS)
    assert not set(ALIASES) & set(FIELDS)


def test_an_alias_that_loses_meaning_is_refused_with_the_reason() -> None:
    assert errors_of({"learning_rate_multiplier": 2}) == {
        "learning_rate_multiplier": [
            "learning_rate_multiplier has no base here; give learning_rate."
        ]
    }


def test_a_setting_given_twice_is_an_error() -> None:
    assert errors_of({"group_size": 4, "num_generations": 8}) == {
        "group_size": ["Given twice: num_generations means group_size."]
    }


def test_truncated_sampling_is_refused_for_training() -> None:
    errors = errors_of({"top_p": 0.9, "top_k": 50})
    assert set(errors) == {"top_p", "top_k"}
    assert errors["top_p"][0].startswith("Must be off for training")


def test_warm_up_may_not_outlast_the_run() -> None:
    assert parse_config({"max_steps": 5, "warmup_steps": 5}).warmup_steps == 5
    assert errors_of({"max_steps": 5, "warmup_steps": 6}) == {
        "warmup_steps": ["Must not be larger than max_steps."]
    }


def test_target_modules_are_kept_in_the_layers_order() -> None:
    assert parse_config({"target_modules": "v_proj, q_proj"}).target_modules == ("q_proj", "v_proj")
    assert parse_config({"target_modules": "all-linear"}).target_modules == LINEAR_MODULES
    assert (
        "Unknown layers 'lm_head'"
        in errors_of({"target_modules": ["lm_head"]})["target_modules"][0]
    )
    for wrong in ([], {}, 3, None, [["q_proj"]]):
        assert "target_modules" in errors_of({"target_modules": wrong})


@pytest.mark.parametrize("values", [None, [], "batch_size=1", 3])
def test_what_is_no_mapping_is_refused(values: object) -> None:
    assert set(errors_of(values)) == {"config"}


def test_hostile_values_are_quoted_briefly_and_fast() -> None:
    errors = errors_of({"batch_size": "9" * 10**6, "x" * 10**6: 1, "seed": 10**5000, "beta": {}})
    assert all(len(message) < 250 for messages in errors.values() for message in messages)
    assert set(errors_of({f"key{n}": n for n in range(10**5)})) == {"config"}


def test_a_config_survives_its_json() -> None:
    config = parse_config({"target_modules": ["q_proj"], "learning_rate": 3e-5})
    assert parse_config(config.to_json()) == config


def test_learning_rate_warms_up_then_follows_its_schedule() -> None:
    rates = {
        kind: [
            parse_config(
                {
                    "learning_rate": 1.0,
                    "max_steps": 6,
                    "warmup_steps": 2,
                    "lr_scheduler_type": kind,
                }
            ).learning_rate_at(step)
            for step in range(6)
        ]
        for kind in ("constant", "linear", "cosine")
    }
    assert rates["constant"] == [0.5, 1, 1, 1, 1, 1]
    assert rates["linear"] == [0.5, 1, 1, 0.75, 0.5, 0.25]
    assert rates["cosine"] == pytest.approx([0.5, 1, 1, 0.853553, 0.5, 0.146447], abs=1e-6)


def test_staleness_is_off_unless_asked_for_and_bounded() -> None:
    assert parse_config({}).max_staleness == 0
    assert parse_config({"max_staleness": "8"}).max_staleness == 8
    with pytest.raises(SpecError) as refused:
        parse_config({"max_staleness": 9})
    assert list(refused.value.fields) == ["max_staleness"]
