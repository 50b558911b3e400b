"""python -m hf_seqmodels.conversion FOLDER CONVERTED: write a checkpoint as that of another family.

Which, its config.json says: BERT becomes a TextEncoder, GPT-2 a DecoderLM, Marian a
TransformerSeq2Seq, and the other way round.
"""

import argparse
import sys
from collections.abc import Sequence

from huggingface_hub.errors import StrictDataclassError
from transformers.utils import logging

from hf_seqmodels.conversion.checkpoints import CONVERTERS, convert_checkpoint


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; wrong input ends with one line that says what to do.

    Args:
        argv: the words after the module's name; None takes those of the process.
    """
    program = argparse.ArgumentParser(
        prog="python -m hf_seqmodels.conversion",
        description="Write a checkpoint as that of another family, with the same numbers.",
        epilog=f"Model types that can be converted: {', '.join(CONVERTERS)}.",
    )
    program.add_argument("checkpoint", help="folder with config.json and weights")
    program.add_argument("folder", help="where to: new or empty")
    options = program.parse_args(argv)
    logging.disable_progress_bar()
    try:
        converted = convert_checkpoint(options.checkpoint, options.folder)
    except (ValueError, OSError, RuntimeError, ImportError, StrictDataclassError) as error:
        sys.exit(f"hf_seqmodels.conversion: error: {error}")
    print(f"Wrote {type(converted).__name__} to {options.folder}.")


if __name__ == "__main__":
    main()
