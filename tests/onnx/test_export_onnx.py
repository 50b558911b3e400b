"""What onnxruntime computes with exported graphs is what the model computes."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from family_cases import Case
from family_grids import GRIDS
from generation_inputs import prompts
from hf_seqmodels import (
    RnnLMConfig,
    RnnLMForCausalLM,
    RnnLMModel,
    TextEncoderConfig,
    TextEncoderForMultipleChoice,
    TextEncoderForPreTraining,
    TextEncoderForQuestionAnswering,
)
from hf_seqmodels.onnx import export_onnx, export_programs, load_graphs
from hf_seqmodels.onnx.__main__ import main
from hf_seqmodels.onnx.exporting import OLDEST_TORCH, check_torch
from tiny_tokenizers import bert_tokenizer

pytestmark = pytest.mark.skipif(
    tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST_TORCH,
    reason="this torch takes lengths of examples for constants",
)
PAD = 12  # not 0, for which beam search of transformers fills rows with the end token
ENCODER_DECODERS = {
    # every cell, every scorer, every place of the attention, every bridge
    "seqmodels_rnn_seq2seq": (
        "lstm_additive_previous_dense",
        "gru_before_multi_head_feeding_residual",
        "relu_scaled_dot_feeding_zeros_dense",
        "gru_general_feeding_zeros_highway",
        "tanh_dot_previous_copy_residual",
        "pointer_with_coverage",
        "sutskever",
    ),
    "seqmodels_transformer_seq2seq": ("modern",),
}
LANGUAGE_MODELS = {
    "seqmodels_decoder_lm": ("rotary_window_grouped", "press"),
    "seqmodels_rnn_lm": ("lstm_wide_top_tied",),
}


def cases_of(names):
    grids = {grid.model_type: grid for grid in GRIDS}
    return [
        pytest.param(Case(name, grids[family], grids[family].representatives[name]), id=name)
        for family, chosen in names.items()
        for name in chosen
    ]


def exported(case, folder):
    model = case.model(dtype=torch.float32, pad_token_id=PAD)
    export_onnx(model, folder / "exported")
    return model, load_graphs(folder / "exported", num_threads=1)


def check_search(model, graphs, inputs):
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    for options in (
        {"max_new_tokens": 7},
        {"max_new_tokens": 6, "num_beams": 3, "num_return_sequences": 2},
    ):
        expected = model.generate(**inputs, **options, use_cache=True)
        np.testing.assert_array_equal(graphs.generate(**arrays, **options), expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", cases_of(ENCODER_DECODERS))
def test_encoder_decoder_computes_the_same_on_onnxruntime(case, tmp_path):
    model, graphs = exported(case, tmp_path)
    inputs = prompts(case, config=model.config, layout="mixed", extra=1)
    check_search(model, graphs, inputs)
    targets = torch.tensor([[1, 5, 9, 3], [1, 2, 2, 11], [1, 7, 4, 4]])
    one_token = {name: tensor[:1, -1:] for name, tensor in inputs.items()}
    one_token["attention_mask"] = torch.ones_like(one_token["attention_mask"])
    for batch, target in ((inputs, targets), (one_token, targets[:1])):
        with torch.no_grad():
            expected = model(**batch, decoder_input_ids=target).logits  # (B, T, V)
        progress = graphs.start(*(batch[name].numpy() for name in ("input_ids", "attention_mask")))
        for place, column in enumerate(target.numpy().T[:, :, None]):
            logits = graphs.read(progress, np.ascontiguousarray(column))
            np.testing.assert_allclose(logits, expected[:, place], atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", cases_of(LANGUAGE_MODELS))
def test_language_model_computes_the_same_on_onnxruntime(case, tmp_path):
    model, graphs = exported(case, tmp_path)
    inputs = prompts(case, config=model.config, extra=1)
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    check_search(model, graphs, inputs)
    is_real = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = model(**inputs).logits  # (B, T, V)
    logits = graphs(**{name: tensor.numpy() for name, tensor in inputs.items()})["logits"]
    np.testing.assert_allclose(logits[is_real], expected[is_real], atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_class", "outputs"),
    [
        (TextEncoderForPreTraining, ["prediction_logits", "seq_relationship_logits"]),
        (TextEncoderForQuestionAnswering, ["start_logits", "end_logits"]),
        (TextEncoderForMultipleChoice, ["logits"]),
    ],
)
def test_text_encoder_computes_the_same_on_onnxruntime(model_class, outputs, tmp_path):
    torch.manual_seed(0)
    config = TextEncoderConfig(
        vocab_size=19, hidden_size=24, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=22, max_position_embeddings=32, initializer_range=0.5,
    )  # fmt: skip
    model = model_class(config).eval()
    graphs = load_graphs(export_onnx(model, tmp_path / "exported"))
    for shape in ((3, 5, 7), (1, 1, 2)):
        shape = shape if outputs == ["logits"] else shape[1:]
        ids, types = torch.randint(19, shape), torch.randint(2, shape)
        mask = torch.ones_like(ids)
        mask[0, ..., 4:] = 0
        batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        with torch.no_grad():
            expected = model(**batch)
        computed = graphs(**{name: tensor.numpy() for name, tensor in batch.items()})
        assert list(computed) == outputs
        for name in outputs:
            np.testing.assert_allclose(computed[name][-1], expected[name][-1], atol=1e-5)
            if name != "prediction_logits":  # which mean nothing at padding
                np.testing.assert_allclose(computed[name], expected[name], atol=1e-5)


def test_programs_of_torch_compute_the_same_after_saving(tmp_path):
    torch.manual_seed(0)
    config = RnnLMConfig(vocab_size=19, embedding_size=9, hidden_size=12, num_hidden_layers=2)
    model = RnnLMForCausalLM(config).train()
    (program,) = export_programs(model).values()
    assert model.training and type(model.model.stack.layers[0]).__name__ == "RecurrentLayer"
    torch.export.save(program, tmp_path / "model.pt2")
    run = torch.export.load(tmp_path / "model.pt2").module()
    ids = torch.randint(19, (3, 6))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    with torch.no_grad():
        outputs = model.eval()(ids, attention_mask=mask, use_cache=True)
        logits, *states = run(ids, mask, *[torch.zeros(3, 12)] * 4)
    torch.testing.assert_close(logits, outputs.logits)
    expected = [part for state in outputs.past_key_values.get_states() for part in state]
    torch.testing.assert_close(states, expected)


OTHER_PROCESS = """
import sys

class Blocked:
    def find_spec(self, name, *others):
        if name.split(".")[0] in ("torch", "transformers", "tokenizers", "hf_seqmodels", "onnx"):
            raise ImportError(f"{name} is not to be needed")

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
from seqmodels_onnx import load_graphs

rows = load_graphs(sys.argv[1]).generate([[4, 5, 6]], num_beams=2, max_new_tokens=6)
print(rows.tolist())
"""


@pytest.mark.slow
def test_exported_folder_needs_neither_torch_nor_this_package(tmp_path, capsys):
    torch.manual_seed(0)
    config = RnnLMConfig(
        vocab_size=19, embedding_size=9, hidden_size=12, num_hidden_layers=1, pad_token_id=PAD
    )
    model = RnnLMForCausalLM(config).eval()
    model.save_pretrained(tmp_path / "model")
    bert_tokenizer().save_pretrained(tmp_path / "model")
    main([str(tmp_path / "model"), str(tmp_path / "exported")])
    assert "Wrote model.onnx to" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "exported").iterdir()}
    assert names >= {"model.onnx", "seqmodels_onnx", "seqmodels_onnx.json", "tokenizer.json"}
    assert json.loads((tmp_path / "exported/seqmodels_onnx.json").read_text())["format"] == 1
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "exported")]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    expected = model.generate(torch.tensor([[4, 5, 6]]), num_beams=2, max_new_tokens=6)
    assert json.loads(printed.stdout) == expected.tolist()


def test_what_cannot_be_exported_is_refused(tmp_path, capsys):
    with pytest.raises(ImportError, match=r"needs torch 2\.11 or newer, got 2\.10\.0"):
        check_torch("2.10.0+cpu")
    model = RnnLMModel(RnnLMConfig(vocab_size=5, embedding_size=3, hidden_size=4))
    with pytest.raises(ValueError, match=r"Graphs can be made of.*got RnnLMModel"):
        export_onnx(model, tmp_path / "exported")
    model = RnnLMForCausalLM(model.config).to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"float32 from the CPU, got torch\.bfloat16"):
        export_programs(model)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is not empty"):
        export_onnx(model, tmp_path)
    with pytest.raises(ValueError, match=r"must hold seqmodels_onnx\.json"):
        load_graphs(tmp_path)
    (tmp_path / "seqmodels_onnx.json").write_text('{"format": 9}')
    with pytest.raises(ValueError, match="must be of format 1, got 9"):
        load_graphs(tmp_path)
    with pytest.raises(SystemExit, match=r"hf_seqmodels\.onnx: error: "):
        main([str(tmp_path), str(tmp_path / "exported")])
