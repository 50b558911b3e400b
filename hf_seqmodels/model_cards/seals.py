"""The seal under a card of ours: it holds as long as nobody has edited the card."""

import hashlib
import re

_SEAL = re.compile(r"\n*<!-- hf_seqmodels wrote this card, seal ([0-9a-f]{16})\.[^>]*-->\s*\Z")


def sealed(text: str) -> str:
    """Put the seal under a card.

    Args:
        text: of the card.

    Returns:
        The text with one comment more, which the Hub does not show.
    """
    text = text.strip() + "\n"
    return (
        f"{text}\n<!-- hf_seqmodels wrote this card, seal {_digest(text)}. Once anything in it is "
        "changed, an export keeps the card as it is. -->\n"
    )


def is_generated(text: str) -> bool:
    """Tell whether a card is ours, unchanged, so that nothing is lost when it is written anew.

    Args:
        text: content of a README.md.

    Returns:
        False for cards by others, and for ours after any edit, be it in the metadata.
    """
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    seal = _SEAL.search(text)
    return seal is not None and seal[1] == _digest(text[: seal.start()].strip() + "\n")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
