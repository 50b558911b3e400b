"""What must not get into a card: access tokens, and folders of the machine a model was made on."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

# "pad_token", "source_extra_tokens" and their like are no secrets
SECRET_OPTION = re.compile(
    r"((push_to_hub|hub|hf|use_auth|auth|access|api)_)?token|(\w+_)?(password|secret|api_?key)"
)
HIDDEN = "***"
# an absolute path of two parts or more inside a command: quoted, or up to the next blank
_ROOT = r"(?:~[\w.-]*|[A-Za-z]:|file://)?[/\\]"
_QUOTED_PATH = re.compile(rf"(?<==|\s)(['\"])({_ROOT}[^'\"\n]*)\1")
_BARE_PATH = re.compile(rf"(?:^|(?<=[\s='\",(\[])){_ROOT}[^\s'\",=()\[\]]+", re.MULTILINE)
# "--name value" and "--name=value"; "NAME=value" for the environment
_OPTION = re.compile(r"(?<!\S)(--?([\w-]+)(?:=|\s+)|(\w+)=)('[^']*'|\"[^\"]*\"|[^\s'\"-][^\s'\"]*)")
_TOKEN = re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}\b")
_PASSWORD = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


def is_secret(option: str) -> bool:
    """Tell whether the value of an option is a secret.

    Args:
        option: its name, with or without leading dashes.

    Returns:
        True for `token`, `--hub_token`, `api-key` and the like.
    """
    name = option.lstrip("-").replace("-", "_").lower()
    return SECRET_OPTION.fullmatch(name) is not None


def without_folders(value: Any) -> Any:
    """Replace absolute paths by their last part.

    Args:
        value: a text, or lists and dictionaries of texts; anything else stays as it is. A path is a
            whole text, or a piece of one between `=` and `,`.

    Returns:
        The same kind of value. Relative paths, addresses and single names such as "/x" stay.
    """
    if isinstance(value, str):
        return "".join(_last_part(piece) for piece in re.split(r"([=,])", value))
    if isinstance(value, Mapping):
        return {name: without_folders(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(item) for item in value]
    return _last_part(str(value)) if isinstance(value, Path) else value


def publishable_command(command: str) -> str:
    """Hide secrets in a command and cut absolute paths down to their last parts.

    Args:
        command: for a shell; quotes and variables stay as they are.

    Returns:
        The command.
    """
    command = _OPTION.sub(_without_secret, command)
    command = _QUOTED_PATH.sub(lambda match: match[1] + _last_part(match[2]) + match[1], command)
    return _BARE_PATH.sub(lambda match: _last_part(match[0]), command)


def without_secrets(value: Any) -> Any:
    """Hide what looks like an access token, a password in an address, or the home folder.

    Args:
        value: a text, or lists and dictionaries of texts; anything else stays as it is.

    Returns:
        The same kind of value.
    """
    if isinstance(value, Mapping):
        return {name: without_secrets(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    if not isinstance(value, str):
        return value
    text = _PASSWORD.sub(HIDDEN, _TOKEN.sub(HIDDEN, value))
    home = str(Path.home())
    return text.replace(f"{home}/", "~/") if len(home) > 1 else text


def shell_command(program: str, argv: Sequence[str]) -> str:
    """Write the command that ran, ready for a shell: no access tokens, no folders of the machine.

    Args:
        program: what comes before the words, as it is: "python training/run_seq2seq.py".
        argv: the words after the program.

    Returns:
        One line.
    """
    words = []
    for before, word in zip(["", *argv], argv, strict=False):
        option, equals, _ = word.partition("=")
        if before.startswith("-") and "=" not in before and is_secret(before):
            words.append(HIDDEN)
        elif option.startswith("-") and equals and is_secret(option):
            words.append(f"{option}={HIDDEN}")
        else:
            words.append(without_folders(word))
    return shlex.join([*shlex.split(program), *words])


def _without_secret(option: re.Match[str]) -> str:
    is_hidden = is_secret(option[2]) if option[2] else option[3].endswith("TOKEN")
    return option[1] + HIDDEN if is_hidden or is_secret(option[2] or option[3]) else option[0]


def _last_part(text: str) -> str:
    plain = text.removeprefix("file://")
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind(plain)
        parts = [part for part in path.parts if part != path.anchor and part.strip()]
        from_home = plain.startswith("~") and len(parts) > 1
        if (path.is_absolute() and len(parts) > 1) or from_home:
            return path.name
    return text
