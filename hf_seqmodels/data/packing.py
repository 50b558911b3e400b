"""Rows of a fixed number of tokens, cut from documents of any length.

Documents are joined end to end and the long text is cut into blocks, so that no computation is
spent on padding. A block may hold the end of one document and the beginning of the next. With
`separate` they do not see one another: `position_ids` begin at 0 with each document, which is how
attention masks of transformers know where documents begin, and the first token of a document is
not predicted from the document before.
"""

from collections.abc import Iterable, Iterator, Sequence

from hf_seqmodels.data.collators import IGNORED_LABEL

Block = dict[str, list[int]]


def token_blocks(
    documents: Iterable[Sequence[int]], block_size: int, *, separate: bool = False
) -> Iterator[Block]:
    """Yield rows of `block_size` tokens that hold all documents one after the other.

    Args:
        documents: token ids of each document, with its end-of-text token.
        block_size: tokens in a row. The last row may be shorter; no token is left out or repeated.
        separate: whether documents in one row are kept from seeing one another.

    Yields:
        `input_ids` and `labels`, which repeat them; with `separate` also `position_ids`, and -100
        for the label of each token that nothing of its own document precedes in the row.

    Raises:
        ValueError: if a row has no room for a prediction.
    """
    if block_size < 2:
        raise ValueError(
            f"block_size must be at least 2 for a token to be predicted from another, got "
            f"{block_size}. Usual sizes are 64 to 1024."
        )
    token_ids: list[int] = []
    positions: list[int] = []
    for document in documents:
        start = 0
        while start < len(document):
            taken = document[start : start + block_size - len(token_ids)]
            token_ids += taken
            # a document that goes on in the next row begins anew there, as far as its row can tell
            positions += range(len(taken))
            start += len(taken)
            if len(token_ids) == block_size:
                yield _block(token_ids, positions if separate else None)
                token_ids, positions = [], []
    if token_ids:
        yield _block(token_ids, positions if separate else None)


def _block(token_ids: list[int], positions: list[int] | None) -> Block:
    if positions is None:
        return {"input_ids": token_ids, "labels": list(token_ids)}
    labels = [
        token_id if position else IGNORED_LABEL
        for token_id, position in zip(token_ids, positions, strict=True)
    ]
    return {"input_ids": token_ids, "labels": labels, "position_ids": positions}
