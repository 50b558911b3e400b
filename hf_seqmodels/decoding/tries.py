"""A closed list of outputs as a trie, so that the decoder can write nothing else."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from hf_seqmodels.evaluation.model_inputs import encode_targets
from hf_seqmodels.models.pipeline_seq2seq_generation import target_side


class TokenTrie:
    """The token sequences that may be written, and what may follow each beginning.

    Source: De Cao et al. 2021, arXiv:2010.00904, section 3.2.

    ```python
    trie = TokenTrie.from_texts(tokenizer, ["Paris", "Palermo"])
    model.generate(**batch, num_beams=5, prefix_allowed_tokens_fn=trie.allowed_tokens_fn())
    ```

    Args:
        sequences: token ids; an end token is put behind where there is none.
        end_id: token that ends an output.

    Raises:
        ValueError: if an end token stands before the end of a sequence.
    """

    def __init__(self, sequences: Iterable[Sequence[int]], *, end_id: int):
        self.end_id = end_id
        self._root: dict[int, dict] = {}
        for sequence in sequences:
            self.add(sequence)

    @classmethod
    def from_texts(cls, tokenizer: Any, texts: Sequence[str]) -> "TokenTrie":
        """Make a trie of texts, encoded as labels are.

        Args:
            tokenizer: the tokenizer, or the pair of tokenizers (`Seq2SeqTokenizer`).
            texts: the outputs that are allowed.

        Returns:
            The trie.

        Raises:
            ValueError: if texts is a bare text, or the tokenizer has no end token.
        """
        end_id = target_side(tokenizer).eos_token_id
        if end_id is None:
            raise ValueError(
                "A trie needs an end token, got eos_token=None. Set the tokenizer's, for instance "
                "tokenizer.eos_token = '</s>'."
            )
        return cls(encode_targets(tokenizer, texts), end_id=end_id)

    def add(self, sequence: Sequence[int]) -> None:
        """Allow one more sequence.

        Args:
            sequence: token ids, with or without an end token behind.

        Raises:
            ValueError: if an end token stands before its end.
        """
        tokens = [int(token) for token in sequence]
        tokens = tokens[:-1] if tokens and tokens[-1] == self.end_id else tokens
        if self.end_id in tokens:
            raise ValueError(
                f"The end token {self.end_id} may stand only behind a sequence, got "
                f"{list(sequence)}. Encode one text without it."
            )
        node = self._root
        for token in [*tokens, self.end_id]:
            node = node.setdefault(token, {})

    def next_tokens(self, prefix: Sequence[int]) -> list[int]:
        """Return the tokens that may follow, in order; none behind an end or what is no beginning.

        Args:
            prefix: token ids so far.

        Returns:
            Token ids.
        """
        node = self._root
        for token in prefix:
            if token not in node:
                return []
            node = node[token]
        return sorted(node)

    def __contains__(self, sequence: Sequence[int]) -> bool:
        """Say whether a sequence with its end token is allowed."""
        is_over = bool(sequence) and sequence[-1] == self.end_id
        return is_over and self.end_id in self.next_tokens(sequence[:-1])

    def allowed_tokens_fn(self, *, prompt_length: int = 1) -> Callable[[int, Tensor], list[int]]:
        """Return the function that `prefix_allowed_tokens_fn` of generate() wants.

        Args:
            prompt_length: tokens that the decoder starts from: 1, the start token.

        Returns:
            A function of the source's index and the tokens so far.

        Raises:
            ValueError: if the trie is empty.
        """
        return allowed_tokens_fn([self], prompt_length=prompt_length)


def allowed_tokens_fn(
    tries: Sequence[TokenTrie], *, prompt_length: int = 1
) -> Callable[[int, Tensor], list[int]]:
    """Return a `prefix_allowed_tokens_fn` where every source has outputs of its own.

    Args:
        tries: one per source of the batch, or a single one for all.
        prompt_length: tokens that the decoder starts from: 1, the start token.

    Returns:
        A function of the source's index and the tokens so far, for generate().

    Raises:
        ValueError: if a trie is empty, or, when it is called, a source has none.
    """
    for index, trie in enumerate(tries):
        if not trie.next_tokens([]):
            raise ValueError(
                f"Every trie must allow at least one output, got an empty one at position {index}. "
                "Add sequences to it."
            )

    def allowed(source: int, tokens: Tensor) -> list[int]:
        if len(tries) > 1 and source >= len(tries):
            raise ValueError(
                f"There must be a trie for every source of the batch, got {len(tries)} and a "
                f"source {source}. Pass one per source, or a single one for all."
            )
        trie = tries[source if len(tries) > 1 else 0]
        # behind the end greedy search and sampling ask on; what they write then is filling
        return trie.next_tokens(tokens.tolist()[prompt_length:]) or [trie.end_id]

    return allowed
