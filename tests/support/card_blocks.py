"""The Python blocks of a card, and running them: here, or where the package is not installed.

    python tests/support/card_blocks.py FOLDER [FOLDER ...]

runs the blocks that need no package, of the README.md in each folder, from the folder above it.
"""

import contextlib
import io
import os
import re
import sys
from pathlib import Path

_BLOCK = re.compile(r"^(`{3,})python\n(.*?)^\1$", re.DOTALL | re.MULTILINE)


def python_blocks(card: str) -> list[str]:
    """Return the Python of a card, block by block."""
    return [block for _, block in _BLOCK.findall(card)]


def run_block(block: str) -> str:
    """Run one block as a program of its own and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    return printed.getvalue().strip()


def promised_by(block: str) -> str | None:
    """Return what a block says it prints: the comment it ends with."""
    last = block.strip().splitlines()[-1]
    return last.removeprefix("# ") if last.startswith("# ") else None


def main(folders: list[str]) -> None:
    """Run the blocks that need no package, and check that they print what they say."""
    for folder in folders:
        os.chdir(Path(folder).parent)
        card = Path(folder, "README.md").read_text(encoding="utf-8")
        blocks = [block for block in python_blocks(card) if "trust_remote_code" in block]
        assert blocks, folder
        for block in blocks:
            printed, promised = run_block(block), promised_by(block)
            assert printed, block
            assert promised in (None, printed), (printed, block)


if __name__ == "__main__":
    sys.modules["hf_seqmodels"] = None  # any import of the package fails from here on
    main(sys.argv[1:])
