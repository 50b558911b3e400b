"""What a language model writes, by several ways of choosing the next token."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

PROMPT_TOKENS = 16


def draw_samples(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    methods: dict[str, dict[str, Any]],
    *,
    num_tokens: int,
) -> list[dict[str, Any]]:
    """Let the model go on from each prompt by each method.

    Args:
        model: any causal language model.
        tokenizer: of the model.
        prompts: token ids that samples begin with, at least one each.
        methods: arguments of generate by the name of the method.
        num_tokens: most tokens of a sample; fewer where the model has no more positions.

    Returns:
        One dictionary for each prompt and method: `prompt`, `method`, `text` (what follows the
        prompt), `num_tokens`, and `log_probability`, the sum of the model's own log-probabilities
        of these tokens in nats, whatever the method made of them.
    """
    samples = []
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    for prompt in prompts:
        room = num_tokens if limit is None else min(num_tokens, limit - len(prompt))
        if room < 1:
            continue
        input_ids = torch.tensor([list(prompt)], device=model.device)  # (1, P)
        for name, settings in methods.items():
            output: Any = model.generate(
                input_ids=input_ids,
                attention_mask=torch.ones_like(input_ids),
                max_length=len(prompt) + room,
                return_dict_in_generate=True,
                output_logits=True,
                **settings,
            )
            new_ids = output.sequences[0, len(prompt) :]  # (N,)
            logits = torch.stack(output.logits)[:, 0].float()  # (N, V)
            chosen = logits.log_softmax(-1).gather(-1, new_ids[:, None])  # (N, 1)
            samples.append(
                {
                    "prompt": tokenizer.decode(prompt, skip_special_tokens=True),
                    "method": name,
                    "text": tokenizer.decode(new_ids, skip_special_tokens=True),
                    "num_tokens": len(new_ids),
                    "log_probability": chosen.sum().item(),
                }
            )
    return samples


def sampling_methods(temperature: float, top_k: int, top_p: float) -> dict[str, dict[str, Any]]:
    """Return the methods that a run shows, by a name that says their setting.

    Args:
        temperature: divides the logits of one method.
        top_k: number of most probable tokens that another draws from.
        top_p: probability that the tokens another draws from sum up to.

    Returns:
        Arguments of generate by name; each sets all that a generation_config might set otherwise.
    """
    plain = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    return {
        "greedy": {"do_sample": False, "num_beams": 1},
        f"top-k {top_k}": {**plain, "top_k": top_k},
        f"top-p {top_p:g}": {**plain, "top_p": top_p},
        f"temperature {temperature:g}": {**plain, "temperature": temperature},
    }


def default_prompts(
    documents: Sequence[str], tokenizer: PreTrainedTokenizerBase, count: int
) -> list[list[int]]:
    """Return the beginnings of some texts spread over a corpus, as prompts.

    Args:
        documents: the texts; empty ones are passed over.
        tokenizer: of the model.
        count: how many.

    Returns:
        Token ids, of each text its first half or its first PROMPT_TOKENS tokens.
    """
    texts = [text for text in documents if text.strip()]
    texts = texts[:: max(len(texts) // max(count, 1), 1)][:count]
    prompts = []
    for text in texts:
        token_ids = tokenizer(text[: 20 * PROMPT_TOKENS], verbose=False)["input_ids"]
        kept = [token_id for token_id in token_ids if token_id != tokenizer.eos_token_id]
        prompts.append(kept[: min(PROMPT_TOKENS, max(len(kept) // 2, 1))])
    return [prompt for prompt in prompts if prompt]
