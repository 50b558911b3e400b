"""Contract, line "round_trip": config and weights come back from disk as they were, tied weights
tied; missing and unexpected keys are named; a missing weight alone is drawn anew, as documented."""

import inspect

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from family_cases import Case
from family_grids import representative_cases
from gradient_checks import assert_same_tensors
from initialisation import assert_initialised
from padded_rows import pad_rows
from stepping import without_labels

WEIGHTS = "model.safetensors"
INITIALISED = (
    "bahdanau",
    "luong",
    "relu_additive_current_highway",
    "gru_multi_head_previous_dense",
    "lstm_none_highway",
    "tied_output_of_other_width",
    "all_tied",
    "other_ids_and_sizes",
    "gpt2",
    "llama",
    "zaremba",
    "awd_lstm",
    "bert",
    "modernbert",
)
LARGE = {
    "vocab_size": 150,
    "embedding_size": 40,
    "hidden_size": 48,
    "encoder_hidden_size": 48,
    "type_vocab_size": 30,
}


def ties_of(model) -> list[set[str]]:
    """Return the sets of parameter names that share their memory."""
    by_address: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        by_address.setdefault(parameter.data_ptr(), set()).add(name)
    return [names for names in by_address.values() if len(names) > 1]


def assert_same_model(case: Case, actual, expected):
    """Assert that two models have the same weights, ties and outputs."""
    assert type(actual) is type(expected)
    assert_same_tensors(actual.state_dict(), expected.state_dict(), rtol=0, atol=0)
    assert ties_of(actual) == ties_of(expected)
    if actual.config._attn_implementation != expected.config._attn_implementation:
        actual.set_attn_implementation(expected.config._attn_implementation)  # not part of a config
    batch = without_labels(pad_rows(case, expected.config, "mixed").batch)
    with torch.no_grad():  # memory that is aligned otherwise may round otherwise
        torch.testing.assert_close(
            actual(**batch).logits, expected(**batch).logits, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("case", representative_cases("round_trip"))
def test_a_config_comes_back_with_every_field(case, tmp_path):
    config = case.config()
    config.save_pretrained(tmp_path)
    for auto_class in (AutoConfig, type(config)):
        again = auto_class.from_pretrained(tmp_path)
        assert type(again) is type(config)
        folder = {"_name_or_path": ""}  # which Auto classes note
        assert again.to_dict() | folder == config.to_dict() | folder
        for name in case.options.keys() & inspect.get_annotations(type(config)).keys():
            assert getattr(again, name) == getattr(config, name)
            assert case.options[name] in (getattr(config, name), None)


@pytest.mark.parametrize("case", representative_cases("round_trip"))
def test_a_model_comes_back_from_its_class_and_its_auto_class(case, tmp_path):
    model = case.model(dtype=torch.float32)
    model.save_pretrained(tmp_path)
    for auto_class in (case.grid.auto_class, case.grid.model_class):
        again, info = auto_class.from_pretrained(tmp_path, output_loading_info=True)
        assert_same_model(case, again, model)
        assert not any(info.values()), info
        assert not again.training
        if case.grid.generates:
            assert again.generation_config.to_dict() == model.generation_config.to_dict()


@pytest.mark.parametrize("case", representative_cases("round_trip"))
def test_tied_weights_are_tied_as_the_config_says_and_stored_once(case, tmp_path):
    model = case.model(dtype=torch.float32)
    expected = case.grid.ties(model.config)
    assert ties_of(model) == expected
    assert ties_of(case.grid.model_class(case.config())) == expected
    model.save_pretrained(tmp_path)
    stored = set(load_file(tmp_path / WEIGHTS))
    for names in expected:
        assert len(stored & names) == 1
    everything = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert stored == everything - set().union(*expected) | {
        name for name in stored if any(name in names for names in expected)
    }
    assert ties_of(case.grid.model_class.from_pretrained(tmp_path)) == expected


@pytest.mark.parametrize("case", representative_cases("round_trip"))
def test_a_second_save_writes_the_same_bytes(case, tmp_path):
    model = case.model(dtype=torch.float32)
    model.save_pretrained(tmp_path / "first")
    case.grid.auto_class.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second")
    for file in (WEIGHTS, "config.json", "generation_config.json"):
        first, second = (tmp_path / name / file for name in ("first", "second"))
        assert first.exists() == second.exists()
        if first.exists():
            assert first.read_bytes() == second.read_bytes(), file


@pytest.mark.parametrize("case", representative_cases("round_trip"))
def test_the_model_without_its_head_loads_from_the_head_and_back(case, tmp_path):
    if AutoModel not in case.grid.family.model_classes:
        pytest.skip("has no model without a head")
    model = case.model(dtype=torch.float32)
    model.save_pretrained(tmp_path / "head")
    base, info = AutoModel.from_pretrained(tmp_path / "head", output_loading_info=True)
    assert type(base) is case.grid.family.model_classes[AutoModel]
    alone = set(info["missing_keys"])  # what the model has without this head alone
    assert all(name.startswith("pooler.") for name in alone)
    kept = {name: value for name, value in base.state_dict().items() if name not in alone}
    assert_same_tensors(kept, model.base_model.state_dict(), rtol=0, atol=0)
    assert ties_of(base) == ties_of(model.base_model)

    base.save_pretrained(tmp_path / "base")
    head, info = case.grid.auto_class.from_pretrained(tmp_path / "base", output_loading_info=True)
    assert_same_tensors(head.base_model.state_dict(), kept, rtol=0, atol=0)
    assert ties_of(head) == ties_of(model)
    prefix = f"{model.base_model_prefix}."
    tied = set().union(*case.grid.ties(model.config))
    assert set(info["missing_keys"]) == {
        name
        for name, _ in model.named_parameters(remove_duplicate=False)
        if not name.startswith(prefix) and name not in tied
    }
    assert set(info["unexpected_keys"]) == alone


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("case", representative_cases("round_trip", only=("luong", "all_tied")))
def test_a_type_asked_for_is_the_type_of_every_weight(case, dtype, tmp_path):
    model = case.model(dtype=torch.float32)
    model.save_pretrained(tmp_path)
    again = case.grid.auto_class.from_pretrained(tmp_path, dtype=dtype)
    assert {parameter.dtype for parameter in again.parameters()} == {dtype}
    expected = {name: value.to(dtype) for name, value in model.state_dict().items()}
    assert_same_tensors(again.state_dict(), expected, rtol=0, atol=0)
    model.to(dtype).save_pretrained(tmp_path)
    again = case.grid.auto_class.from_pretrained(tmp_path)
    assert {parameter.dtype for parameter in again.parameters()} == {dtype}


def fresh_model(case: Case, **changes):
    """Return a model as its family initialises it, large enough to tell distributions."""
    given = case.config().to_dict()
    large = {name: size for name, size in LARGE.items() if given.get(name)}
    return case.grid.model_class(case.config(**large, **changes))


@pytest.mark.parametrize("case", representative_cases("round_trip", only=INITIALISED))
def test_a_new_model_is_drawn_as_documented_and_from_the_seed(case):
    torch.manual_seed(5)
    model = fresh_model(case)
    for name, _ in model.named_parameters():  # of tied names the first, an embedding table
        assert_initialised(model, name)
    torch.manual_seed(5)
    assert_same_tensors(fresh_model(case).state_dict(), model.state_dict(), rtol=0, atol=0)
    torch.manual_seed(6)
    other = fresh_model(case).state_dict()
    for name, value in model.state_dict().items():
        assert value.unique().numel() <= 2 or not torch.equal(other[name], value), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", representative_cases("round_trip", only=INITIALISED))
def test_a_missing_weight_is_named_and_alone_drawn_anew(case, dtype, tmp_path):
    model = fresh_model(case)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.25)  # what no initialisation gives
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / WEIGHTS)
    tied = {name: names for names in case.grid.ties(model.config) for name in names}
    for missing in stored:
        kept = {name: value for name, value in stored.items() if name != missing}
        save_file(kept, tmp_path / WEIGHTS, metadata={"format": "pt"})
        again, info = case.grid.auto_class.from_pretrained(
            tmp_path, dtype=dtype, output_loading_info=True
        )
        drawn = tied.get(missing, {missing})
        assert missing in info["missing_keys"]
        assert set(info["missing_keys"]) <= drawn
        assert_initialised(again, next(n for n, _ in again.named_parameters() if n in drawn))
        assert ties_of(again) == case.grid.ties(model.config)
        for name, value in again.state_dict().items():
            assert name in drawn or (value == 0.25).all(), (missing, name)


@pytest.mark.parametrize("case", representative_cases("round_trip", only=("luong", "bahdanau")))
def test_an_unexpected_weight_is_named_and_harms_nothing(case, tmp_path):
    model = case.model(dtype=torch.float32)
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / WEIGHTS)
    stored["model.unheard_of.weight"] = torch.ones(3)
    save_file(stored, tmp_path / WEIGHTS, metadata={"format": "pt"})
    again, info = case.grid.auto_class.from_pretrained(tmp_path, output_loading_info=True)
    assert set(info["unexpected_keys"]) == {"model.unheard_of.weight"}
    assert not info["missing_keys"]
    assert_same_model(case, again, model)


@pytest.mark.parametrize("case", representative_cases("round_trip", only=("luong", "bahdanau")))
def test_a_weight_of_another_shape_is_refused(case, tmp_path):
    model = case.model(dtype=torch.float32)
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / WEIGHTS)
    name = next(iter(stored))
    stored[name] = torch.ones(*stored[name].shape, 2)
    save_file(stored, tmp_path / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(RuntimeError, match=r"(?i)mismatch"):
        case.grid.auto_class.from_pretrained(tmp_path)


@pytest.mark.parametrize("case", representative_cases("round_trip", only=("luong", "bahdanau")))
def test_a_truncated_file_is_refused(case, tmp_path):
    case.model(dtype=torch.float32).save_pretrained(tmp_path)
    content = (tmp_path / WEIGHTS).read_bytes()
    (tmp_path / WEIGHTS).write_bytes(content[: len(content) // 2])
    with pytest.raises(Exception, match=r"(?i)incomplete|invalid|header|corrupt"):
        case.grid.auto_class.from_pretrained(tmp_path)
