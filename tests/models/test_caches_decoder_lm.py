"""DecoderLM with the caches of transformers: growing, of fixed size, compiled, paged."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from transformers import DynamicCache, StaticCache
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from family_cases import randomize
from hf_seqmodels import DecoderLMConfig, DecoderLMForCausalLM

IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9], [9, 1, 1, 4, 18, 0, 2]])  # (B, T)
MASK = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
KINDS = {
    **{name: {"position_embedding": name} for name in ("learned", "sinusoidal", "rotary", "alibi")},
    "window": {"position_embedding": "rotary", "sliding_window": 3},
    "alibi_window": {"position_embedding": "alibi", "sliding_window": 4},
    "grouped_post": {"norm_position": "post", "num_key_value_heads": 1, "norm_type": "rms"},
}
every_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def make_model(dtype=torch.float64, **options) -> DecoderLMForCausalLM:
    """Return a model with random parameters, in evaluation mode."""
    sizes = {"vocab_size": 19, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = DecoderLMForCausalLM(DecoderLMConfig(**sizes | options)).to(dtype).eval()
    randomize(model, seed=1)
    return model


def read_in_chunks(model, cache, chunks) -> torch.Tensor:
    """Return the logits of IDS, read some tokens at a time."""
    logits, start = [], 0
    for size in chunks:
        end = start + size
        outputs = model(
            IDS[:, start:end], attention_mask=MASK[:, :end], past_key_values=cache, use_cache=True
        )
        logits.append(outputs.logits)
        start = end
    return torch.cat(logits, dim=1)


@every_kind
@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
def test_a_cache_of_fixed_size_gives_what_a_growing_one_gives(options, attn_implementation):
    model = make_model(attn_implementation=attn_implementation, **options)
    keep = MASK.bool()
    with torch.no_grad():
        whole = model(IDS, attention_mask=MASK).logits[keep]
        for chunks in ((7,), (4, 1, 1, 1), (1, 3, 3)):
            for cache in (DynamicCache(config=model.config), StaticCache(model.config, 12)):
                logits = read_in_chunks(model, cache, chunks)
                torch.testing.assert_close(logits[keep], whole)


@every_kind
@pytest.mark.parametrize("mode", [{}, {"num_beams": 3}, {"do_sample": True}])
def test_generate_writes_the_same_with_either_cache(options, mode):
    model = make_model(**options)
    written = []
    for name in ("dynamic", "static"):
        torch.manual_seed(0)
        written.append(
            model.generate(
                IDS,
                attention_mask=MASK,
                max_new_tokens=6,
                eos_token_id=None,
                cache_implementation=name,
                disable_compile=True,
                **mode,
            )
        )
    assert torch.equal(written[0], written[1])


@pytest.mark.skipif(
    torch.__version__.startswith("2.6."), reason="cannot trace the decorators of transformers"
)
@pytest.mark.parametrize("options", [KINDS[name] for name in ("learned", "rotary", "alibi")])
def test_decoding_compiles_once_into_one_graph(options):
    torch.compiler.reset()
    model = make_model(torch.float32, **options)
    counter = CompileCounter()
    step = torch.compile(model.forward, backend=counter, fullgraph=True, dynamic=False)
    cache = StaticCache(model.config, 12)
    with torch.no_grad():
        expected = model(IDS).logits
        model(IDS[:, :2], past_key_values=cache, use_cache=True)
        for place in range(2, 7):
            positions = torch.full((2, 1), place)
            outputs = step(
                IDS[:, place : place + 1],
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
            logits = outputs.logits[:, 0]
            torch.testing.assert_close(logits, expected[:, place], rtol=1e-5, atol=1e-5)
    assert counter.frame_count == 1


@every_kind
def test_logits_are_kept_where_asked_for(options):
    model = make_model(**options)
    with torch.no_grad():
        whole = model(IDS).logits
        torch.testing.assert_close(model(IDS, logits_to_keep=2).logits, whole[:, -2:])
        chosen = torch.tensor([0, 3, 5])
        torch.testing.assert_close(model(IDS, logits_to_keep=chosen).logits, whole[:, chosen])


@pytest.mark.slow
@pytest.mark.parametrize("options", [KINDS[name] for name in ("learned", "window")])
def test_continuous_batching_writes_what_generate_writes(options):
    model = make_model(torch.float32, **options)
    prompts = [[3, 4, 5, 6, 7], [9, 1], [4, 4, 8]]
    settings = model.generation_config
    settings.update(max_new_tokens=5, do_sample=False, eos_token_id=-1)
    expected = [model.generate(torch.tensor([one]))[0, len(one) :].tolist() for one in prompts]
    sizes = ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=32)
    outputs = model.generate_batch(prompts, settings, continuous_batching_config=sizes)
    assert [one.generated_tokens for one in outputs.values()] == expected
