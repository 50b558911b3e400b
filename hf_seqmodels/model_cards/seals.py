"""The seal under a card of ours: it holds as long as nobody has edited the card.

It is a comment at the end, which the Hub does not show: the facts that the card was written from,
so that it can be written anew for another place, and a checksum.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

_NOTE = "hf_seqmodels wrote this card. Once anything in it is changed, exports keep it as it is."
_SEAL = re.compile(
    rf"<!-- {re.escape(_NOTE)}\nchecksum: ([0-9a-f]{{16}})\nfacts: (.*)\n-->\s*\Z", re.DOTALL
)


def sealed(text: str, facts: Mapping[str, Any]) -> str:
    """Put the seal under a card.

    Args:
        text: of the card.
        facts: that it was written from, JSON-plain.

    Returns:
        The text with one comment more.
    """
    text = text.strip() + "\n"
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items()]
    # what could end the comment stands, in JSON, only in texts, which may have it as an escape
    written = "{" + ",\n".join(lines) + "}"
    for mark, escape in (("--", r"-\u002d"), ("<", r"\u003c"), (">", r"\u003e")):
        written = written.replace(mark, escape)
    checksum = _checksum(text, written)
    return f"{text}\n<!-- {_NOTE}\nchecksum: {checksum}\nfacts: {written}\n-->\n"


def is_generated(text: str) -> bool:
    """Tell whether a card is ours, unchanged, so that nothing is lost when it is written anew.

    Args:
        text: content of a README.md.

    Returns:
        False for cards by others, and for ours after any edit, be it in the metadata.
    """
    return facts_in_card(text) is not None


def facts_in_card(text: str) -> dict[str, Any] | None:
    """Read the facts that an unchanged card of ours was written from.

    Args:
        text: content of a README.md.

    Returns:
        Arguments for `render_card`; None if the card is not ours, or edited.
    """
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    seal = _SEAL.search(text)
    if seal is None or seal[1] != _checksum(text[: seal.start()].strip() + "\n", seal[2]):
        return None
    return json.loads(seal[2])


def _checksum(text: str, facts: str) -> str:
    return hashlib.sha256(f"{text}\n{facts}".encode()).hexdigest()[:16]
