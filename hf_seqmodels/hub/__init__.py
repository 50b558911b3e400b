"""The way to the Hub: complete folders that load without this package, and pushing them.

    python -m hf_seqmodels.hub export runs/mine exported
    python -m hf_seqmodels.hub push exported user/name

Every name below is loaded on first use.

| name | what it does |
|---|---|
| `export` | writes model, tokenizer, code and card; checks that they load without the package |
| `push` | sends a model, a checkpoint or an exported folder to the Hub, in one commit |
| `load_checkpoint` | model and tokenizer of a folder; refuses what is not complete |
| `HubError` | why a push could not be done, and what to do |
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.hub.checkpoints import load_checkpoint
    from hf_seqmodels.hub.exporting import export
    from hf_seqmodels.hub.pushing import HubError, push

__all__ = ["HubError", "export", "load_checkpoint", "push"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "HubError": "pushing",
        "export": "exporting",
        "load_checkpoint": "checkpoints",
        "push": "pushing",
    },
)
