"""python -m hf_seqmodels.hub: export a checkpoint, push it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers.utils import logging

from hf_seqmodels.hub.checkpoints import load_checkpoint
from hf_seqmodels.hub.exporting import export
from hf_seqmodels.hub.pushing import push


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line.

    Returns:
        The parser.
    """
    program = argparse.ArgumentParser(
        prog="python -m hf_seqmodels.hub",
        description="Make a checkpoint load everywhere, and send it to the Hub.",
    )
    commands = program.add_subparsers(dest="command", required=True)
    exported = commands.add_parser(
        "export", help="write weights, tokenizer, code and card of a checkpoint into a folder"
    )
    exported.add_argument("checkpoint", help="checkpoint-<step> of a Trainer, or output of a run")
    exported.add_argument("folder", help="where to: new, empty, or an earlier export")
    exported.add_argument("--overwrite", action="store_true", help="replace what the folder holds")
    exported.add_argument("--repo_id", help="name that it is to have on the Hub, for the card")
    pushed = commands.add_parser(
        "push",
        help="send an export or a checkpoint to the Hub, in one commit",
        description="The access token comes from HF_TOKEN or from `hf auth login`.",
    )
    pushed.add_argument("folder", help="an export, a checkpoint of a Trainer, or output of a run")
    pushed.add_argument("repo_id", help="user/name")
    visibility = pushed.add_mutually_exclusive_group()
    visibility.add_argument("--private", action="store_true", default=None)
    visibility.add_argument("--public", action="store_false", dest="private", default=None)
    pushed.add_argument("--revision", help="branch, made if it is not there")
    pushed.add_argument("--commit_message")
    pushed.add_argument("--create_pr", action="store_true", help="open a pull request")
    for command in (exported, pushed):
        command.add_argument("--no_tokenizer", action="store_true", help="there is no tokenizer")
        command.add_argument("--no_verify", action="store_true", help="do not load it to compare")
        command.add_argument("--card", help="file to take as README.md")
        command.add_argument("--license", help="for the card, as the Hub spells it: apache-2.0")
        command.add_argument("--language", nargs="+", help="for the card: en bg")
    return program


def run(options: argparse.Namespace) -> str:
    """Do what the command line says.

    Args:
        options: what `parser` made of it.

    Returns:
        A line for the user.
    """
    common: dict[str, Any] = {
        "card": Path(options.card).read_text(encoding="utf-8") if options.card else None,
        "facts": {"license": options.license, "language": options.language},
        "verify": not options.no_verify,
    }
    if options.command == "push":
        commit = push(
            options.folder,
            options.repo_id,
            private=options.private,
            revision=options.revision,
            commit_message=options.commit_message,
            create_pr=options.create_pr,
            with_tokenizer=not options.no_tokenizer,
            **common,
        )
        return f"Pushed: {commit.pr_url or commit.commit_url}"
    model, tokenizer = load_checkpoint(options.checkpoint, with_tokenizer=not options.no_tokenizer)
    folder = export(
        model,
        tokenizer,
        options.folder,
        source=options.checkpoint,
        repo_id=options.repo_id,
        overwrite=options.overwrite,
        **common,
    )
    checked = "" if options.no_verify else ", checked in a process without hf_seqmodels"
    return f"Exported to {folder}{checked}."


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; wrong input ends with one line that says what to do.

    Args:
        argv: the words after the module's name; None takes those of the process.
    """
    logging.disable_progress_bar()
    try:
        print(run(parser().parse_args(argv)))
    except (ValueError, OSError, RuntimeError) as error:
        sys.exit(f"hf_seqmodels.hub: error: {error}")


if __name__ == "__main__":
    main()
