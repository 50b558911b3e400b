"""python -m hf_seqmodels.onnx FOLDER EXPORTED: write a checkpoint as ONNX graphs, with a decoder.

What the new folder holds runs on numpy and onnxruntime; see docs/export.md.
"""

import argparse
import sys
from collections.abc import Sequence

from huggingface_hub.errors import StrictDataclassError
from transformers.utils import logging

from hf_seqmodels.onnx.exporting import export_folder


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; wrong input ends with one line that says what to do.

    Args:
        argv: the words after the module's name; None takes those of the process.
    """
    program = argparse.ArgumentParser(
        prog="python -m hf_seqmodels.onnx",
        description="Write a checkpoint as ONNX graphs that need no torch to run.",
    )
    program.add_argument("checkpoint", help="folder with config.json and weights")
    program.add_argument("folder", help="where to: new or empty")
    options = program.parse_args(argv)
    logging.disable_progress_bar()
    try:
        target = export_folder(options.checkpoint, options.folder)
    except (ValueError, OSError, ImportError, StrictDataclassError) as error:
        sys.exit(f"hf_seqmodels.onnx: error: {error}")
    graphs = ", ".join(sorted(path.name for path in target.glob("*.onnx")))
    print(f"Wrote {graphs} to {target}.")


if __name__ == "__main__":
    main()
