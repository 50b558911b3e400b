"""One training step of one of several processes; a test starts them and compares the weights.

python one_parallel_step.py <model type> <case> <folder of the model> <rows per process>
"""

import sys
from pathlib import Path

import torch

from family_cases import representatives_of
from family_grids import GRIDS
from small_training import make_trainer


def main(model_type: str, name: str, folder: Path, batch_size: int) -> None:
    """Load the model, take one step of SGD over all processes, save the weights of the first."""
    torch.set_num_threads(1)
    grid = next(grid for grid in GRIDS if grid.model_type == model_type)
    case = next(case for case in representatives_of(grid) if case.id == name)
    model = grid.model_class.from_pretrained(folder, dtype=torch.float64)
    trainer = make_trainer(
        case,
        model,
        folder / "run",
        batch_size=batch_size,
        max_steps=1,
        optim="sgd",
        learning_rate=0.5,
        ddp_backend="gloo",
    )
    trainer.train()
    assert trainer.args.world_size == 2
    if trainer.is_world_process_zero():
        torch.save(model.state_dict(), folder / "after.pt")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
