"""Model cards: the README.md of a checkpoint, written from the model and what is known about it.

Every name below is loaded on first use.

| name | what it does |
|---|---|
| `render_card` | writes a card: metadata for the Hub, code that loads, scores, data, training |
| `CardFacts` | what a card may say about a model beyond the model itself |
| `card_for_export` | the card of an export: the edited one of its source, or a new one |
| `facts_of_run` | facts for a card from the metrics.json of a training script |
| `is_generated` | tells a card of ours that nobody has edited from any other |
| `pictures_in` | the pictures that a card shows and that must lie beside it |
| `shell_command` | a command for a card, without access tokens and folders of the machine |
| `without_folders` | values for a card, their absolute paths cut down to the last part |
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.model_cards.exported_cards import card_for_export, pictures_in
    from hf_seqmodels.model_cards.facts import CardFacts, facts_of_run
    from hf_seqmodels.model_cards.privacy import shell_command, without_folders
    from hf_seqmodels.model_cards.rendering import render_card
    from hf_seqmodels.model_cards.seals import is_generated

__all__ = [
    "CardFacts",
    "card_for_export",
    "facts_of_run",
    "is_generated",
    "pictures_in",
    "render_card",
    "shell_command",
    "without_folders",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CardFacts": "facts",
        "card_for_export": "exported_cards",
        "facts_of_run": "facts",
        "is_generated": "seals",
        "pictures_in": "exported_cards",
        "render_card": "rendering",
        "shell_command": "privacy",
        "without_folders": "privacy",
    },
)
