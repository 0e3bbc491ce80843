"""The torch-free tokenizer gives what transformers gives."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.models.chat import ChatTokenizer

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 12 + 34? – naïve 🙂\n\tindented"},
]


@pytest.fixture
def copy(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "copy"))


def test_prompts_are_those_of_transformers(tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    wanted = AutoTokenizer.from_pretrained(tiny_model).apply_chat_template(
        MESSAGES, add_generation_prompt=True
    )
    assert ChatTokenizer(tiny_model).encode_chat(MESSAGES) == wanted["input_ids"]


def test_a_template_that_uses_loops_json_and_special_tokens_renders_as_in_transformers(
    copy: Path,
) -> None:
    from transformers import AutoTokenizer

    template = (
        "{{ bos_token }}{%- for m in messages %}\n"
        "  {%- if loop.index > 1 %}{% break %}{% endif %}\n"
        "{{ m | tojson }}{{ eos_token }}\n{% endfor %}\n"
        "{%- if add_generation_prompt %}go{% endif %}"
    )
    (copy / "chat_template.jinja").write_text(template)
    wanted = AutoTokenizer.from_pretrained(copy).apply_chat_template(
        MESSAGES, add_generation_prompt=True, tokenize=False
    )
    assert ChatTokenizer(copy).render(MESSAGES) == wanted


def test_decoding_leaves_special_tokens_out(tiny_model: Path) -> None:
    tokenizer = ChatTokenizer(tiny_model)
    text = tokenizer.decode(tokenizer.encode_chat([{"role": "user", "content": "naïve 🙂"}]))
    assert text == "user\nnaïve 🙂\nassistant\n"


def test_eos_ids_come_from_every_configuration_once(copy: Path) -> None:
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 2]}))
    assert ChatTokenizer(copy).eos_ids == (7, 2)


def test_a_template_that_refuses_is_a_model_error(copy: Path) -> None:
    (copy / "chat_template.jinja").write_text("{{ raise_exception('no system role') }}")
    with pytest.raises(ModelError, match="no system role"):
        ChatTokenizer(copy).encode_chat(MESSAGES)


def test_a_hostile_template_cannot_leave_the_sandbox(copy: Path) -> None:
    (copy / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}")
    with pytest.raises(ModelError, match="refuses"):
        ChatTokenizer(copy).encode_chat(MESSAGES)


def test_a_model_without_a_template_or_tokenizer_is_refused_with_the_reason(copy: Path) -> None:
    (copy / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="no chat template: use an instruct model"):
        ChatTokenizer(copy)
    (copy / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        ChatTokenizer(copy)


def test_chat_and_shapes_never_import_torch(tiny_model: Path) -> None:
    code = (
        "import sys; from engine.models.chat import ChatTokenizer\n"
        "from engine.models.shapes import linear_shapes\n"
        "import engine.models.demo, engine.rollout.service, engine.training.advantages\n"
        f"ChatTokenizer({str(tiny_model)!r}).encode_chat([{{'role': 'user', 'content': 'x'}}])\n"
        f"linear_shapes({str(tiny_model)!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_message_after_an_answer_continues_what_the_template_gives(tiny_model: Path) -> None:
    """Prompt, answer and message together are the whole conversation's tokens, in order."""
    chat = ChatTokenizer(tiny_model)
    answer = chat._tokenizer.encode("It is 46.<|im_end|>", add_special_tokens=False).ids
    whole = [*MESSAGES, {"role": "assistant", "content": "It is 46."}]
    wanted = chat.encode_chat([*whole, {"role": "user", "content": "Sure?"}])
    message = chat.encode_reply([{"role": "user", "content": "Sure?"}], answer[-1])
    assert [*chat.encode_chat(MESSAGES), *answer, *message] == wanted
    assert chat.encode_reply([{"role": "user", "content": "Sure?"}], -1) == [answer[-1], *message]
