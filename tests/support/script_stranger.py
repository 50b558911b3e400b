"""Somebody who does not have the package: runs scripts on checkpoints that bring their code.

    python tests/support/script_stranger.py RUNS_FILE RESULTS_FILE

RUNS_FILE maps names of runs to [script, its file, its arguments, the folder that it writes];
RESULTS_FILE gets what is computed again from each folder, or the error of the run.
"""

import json
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any


def outcome(script: str, file: str, arguments: list[str], folder: str) -> dict[str, Any]:
    """Run a script, load what it wrote and return what the loaded model computes."""
    from example_losses import computed_again, load

    sys.argv = [file, *arguments]
    sys.path[0] = str(Path(file).parent)
    runpy.run_path(file, run_name="__main__")
    model, tokenizer = load(script, folder, trust_remote_code=True)
    module = type(model).__module__
    assert module.startswith("transformers_modules."), module
    return computed_again(script, model, tokenizer)


def main(runs_file: str, results_file: str) -> None:
    """Do all runs, one after the other, and store what came of them."""
    sys.path.insert(0, str(Path(__file__).parent))  # the first place is that of the script
    results = {}
    for name, run in json.loads(Path(runs_file).read_text()).items():
        try:
            results[name] = outcome(*run)
        except (Exception, SystemExit):
            results[name] = {"error": traceback.format_exc()}
    Path(results_file).write_text(json.dumps(results))


if __name__ == "__main__":
    sys.modules["hf_seqmodels"] = None  # any import of the package fails from here on
    main(*sys.argv[1:])
