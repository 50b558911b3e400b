"""Contract, line "padding": padding never changes a real position, wherever it stands.

The second source is every row alone, without padding and without a mask.
"""

import pytest
import torch

from family_cases import Case
from family_grids import full_groups, representative_cases
from generation_inputs import generate, prompt_alone, prompt_sides, prompts
from padded_rows import LAYOUTS, PaddedRows, alone, pad_rows, skip_unless_taken
from plain_search import until_end
from stepping import without_labels


def assert_rows_as_alone(case: Case, model, padded: PaddedRows, *, num_rows: int | None = None):
    """Assert that every real position of a batch has what the row alone has."""
    with torch.no_grad():
        outputs = model(**without_labels(padded.batch), output_attentions=True)
    for index, row in enumerate(case.rows(model.config)[:num_rows]):
        with torch.no_grad():
            expected = model(**without_labels(alone(case, row)), output_attentions=True)
        per_token = set()
        for side in case.grid.sides:
            positions = padded.positions[side.tokens][index]
            for name in side.outputs:
                torch.testing.assert_close(outputs[name][index, positions], expected[name][0])
                per_token.add(name)
        if "logits" not in per_token:
            torch.testing.assert_close(outputs.logits[index], expected.logits[0])
        for weights, alone_weights in zip(
            outputs.get("cross_attentions") or (),
            expected.get("cross_attentions") or (),
            strict=True,
        ):
            assert_weights_as_alone(case, padded, index, weights[index], alone_weights[0])


def assert_weights_as_alone(case: Case, padded: PaddedRows, index: int, weights, expected):
    """Assert that weights (H, T, S) are zero at source padding and as alone elsewhere."""
    source, target = (padded.positions[side.tokens][index] for side in case.grid.sides)
    spread = torch.zeros(*expected.shape[:2], weights.shape[-1], dtype=weights.dtype)
    spread[:, :, source] = expected
    torch.testing.assert_close(weights[:, target], spread)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", representative_cases("padding"))
def test_padding_does_not_change_real_positions(case, layout):
    skip_unless_taken(case, layout)
    model = case.model()
    assert_rows_as_alone(case, model, pad_rows(case, model.config, layout, extra=2))


@pytest.mark.parametrize("group", full_groups("padding"))
def test_padding_does_not_change_real_positions_in_any_combination(group):
    for case in group.cases:
        with case.named():
            model = case.model()
            assert_rows_as_alone(case, model, pad_rows(case, model.config, "mixed", extra=1))


@pytest.mark.parametrize("case", representative_cases("padding", only=("luong", "bahdanau")))
def test_masks_of_any_type_mean_the_same(case):
    model = case.model()
    batch = without_labels(pad_rows(case, model.config, "mixed").batch)
    expected = model(**batch).logits
    for dtype in (torch.bool, torch.int32, torch.float32):
        keeps = {side.keep: batch[side.keep].to(dtype) for side in case.grid.sides}
        assert torch.equal(model(**batch | keeps).logits, expected), dtype


def with_empty_rows(case: Case, layout: str, *, only_empty: bool = False) -> PaddedRows:
    """Return the rows of a case and, behind them, two rows that are padding alone."""
    rows = case.rows()
    padded = pad_rows(case, case.config(), layout, rows=[*rows, rows[0], rows[1]], extra=1)
    for side in case.grid.sides:
        padded.batch[side.keep][len(rows) :] = 0
        for name in side.aligned:
            if name in padded.batch:
                padded.batch[name][len(rows) :] = -100
    if only_empty:
        empty = {name: value[len(rows) :] for name, value in padded.batch.items()}
        return PaddedRows(empty, {name: [] for name in padded.positions})
    return padded


@pytest.mark.parametrize("case", representative_cases("padding"))
def test_rows_of_padding_alone_change_no_other_row(case):
    padded = with_empty_rows(case, "mixed")
    assert_rows_as_alone(case, case.model(), padded, num_rows=len(case.rows()))


@pytest.mark.parametrize("only_empty", [False, True])
@pytest.mark.parametrize("case", representative_cases("padding"))
def test_rows_of_padding_alone_give_finite_outputs_and_gradients(case, only_empty):
    model = case.model().train()
    batch = with_empty_rows(case, "mixed", only_empty=only_empty).batch
    outputs = model(**without_labels(batch), output_attentions=True)
    assert outputs.logits.isfinite().all()
    for weights in outputs.get("cross_attentions") or ():
        padding = batch[case.grid.sides[0].keep] == 0
        assert (weights.permute(0, 3, 1, 2)[padding] == 0).all()
    outputs.logits.square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("case", representative_cases("padding"))
def test_rows_of_padding_alone_add_no_gradient(case):
    model = case.model()
    expected = gradients(model, pad_rows(case, model.config, "mixed").batch)
    with_empty = gradients(model, with_empty_rows(case, "mixed").batch)
    for name, gradient in expected.items():
        torch.testing.assert_close(with_empty[name], gradient, msg=lambda m, n=name: f"{n}: {m}")


def gradients(model, batch) -> dict[str, torch.Tensor]:
    """Return {parameter: gradient of the loss}."""
    model.zero_grad()
    model(**batch).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("case", representative_cases("padding", generates=True))
def test_padding_does_not_change_what_is_generated(case, num_beams):
    model = case.model()
    options = {"num_beams": num_beams, "max_new_tokens": 6}
    expected = [
        until_end(generate(case, model, prompt_alone(case, row), **options)[0], model.config)
        for row in case.rows()
    ]
    layouts = LAYOUTS if len(case.grid.sides) == 2 else ("left",)
    for layout in layouts:
        written = generate(case, model, prompts(case, layout=layout, extra=2), **options)
        assert [until_end(row, model.config) for row in written] == expected, layout


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("case", representative_cases("padding", generates=True))
def test_rows_of_padding_alone_are_generated_from_like_any_other(case, num_beams):
    model = case.model()
    options = {"num_beams": num_beams, "max_new_tokens": 6, "use_cache": True}
    expected = generate(case, model, prompts(case), **options)
    inputs = prompts(case, [*case.rows(), case.rows()[0]])
    for side in prompt_sides(case):
        inputs[side.keep][-1] = 0
    written = generate(case, model, inputs, **options)
    for row, expected_row in zip(written, expected, strict=False):
        assert until_end(row, model.config) == until_end(expected_row, model.config)
    assert len(until_end(written[-1], model.config)) >= 1


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("case", representative_cases("padding", generates=True))
def test_padding_in_a_target_prompt_does_not_change_what_follows(case, use_cache):
    if len(case.grid.sides) == 1:
        pytest.skip("the prompt is the only side, see the tests above")
    model = case.model()
    rows = case.rows()
    options = {"max_new_tokens": 4, "use_cache": use_cache}
    for num_beams in (1, 2):
        padded = pad_rows(case, model.config, "left")
        del padded.batch["labels"]
        prompt_length = padded.batch[case.written_side.tokens].shape[1]
        torch.manual_seed(0)
        sequences = model.generate(**padded.batch, **options, num_beams=num_beams)
        for index, row in enumerate(rows):
            inputs = alone(case, row)
            del inputs["labels"]
            expected = model.generate(**inputs, **options, num_beams=num_beams)
            expected = expected[0, row[case.written_side.tokens].shape[0] :]
            assert until_end(sequences[index, prompt_length:], model.config) == until_end(
                expected, model.config
            )
