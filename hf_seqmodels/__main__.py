"""Run a script, or a command of transformers, with the model families registered.

    python -m hf_seqmodels run_mlm.py --model_name_or_path my-model ...
    python -m hf_seqmodels serve my-model --continuous-batching
    accelerate launch -m hf_seqmodels run_mlm.py ...

What the program reads from the command line is what stands behind its name. A script runs in place,
as Python would run it. `serve`, `chat` and `download` are those of the `transformers` command.
"""

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from hf_seqmodels.auto_classes import FAMILIES

# what transformers calls its commands; "serve" finds a model's class by its name in transformers
COMMANDS = ("chat", "download", "env", "serve", "version")
USAGE = f"python -m hf_seqmodels SCRIPT.py [ARGUMENTS], or one of {', '.join(COMMANDS)}"


def name_classes_in_transformers() -> None:
    """Let this process find the model classes of the package as attributes of transformers.

    `transformers serve` loads a checkpoint by `getattr(transformers, config.architectures[0])`,
    with or without remote code, and thus only what transformers carries itself.
    """
    transformers = sys.modules["transformers"]  # importing its processors replaces the module
    for family in FAMILIES:
        for model_class in family.model_classes.values():
            if not hasattr(transformers, model_class.__name__):
                setattr(transformers, model_class.__name__, model_class)


def main(arguments: Sequence[str]) -> None:
    """Run what the command line names.

    Args:
        arguments: a script or command, and what it is to read.

    Raises:
        SystemExit: if there is nothing of this name; and as the program ends itself.
    """
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(f"usage: {USAGE}\n\n{__doc__}")
        return
    if name in COMMANDS:
        from transformers.cli.transformers import main as run_command

        name_classes_in_transformers()
        sys.argv = ["transformers", *arguments]
        run_command()
        return
    if not Path(name).is_file():
        raise SystemExit(f"usage: {USAGE}; there is no file and no command {name!r}.")
    sys.argv = [*arguments]
    sys.path[0] = str(Path(name).resolve().parent)
    runpy.run_path(name, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
