"""Processes on the CPU for the tensor parallel and FSDP suites of transformers.

The source distribution lacks the module that these suites import for it. This file takes its place
in the staged package and has its names; it imports nothing of the repository.
"""

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
import transformers

# Auto class that loads the models of the FSDP suite, which only knows decoders. The suite of a
# family sets it; the processes that it starts receive it.
auto_class = "AutoModelForCausalLM"
# a process of its own takes longer to import everything than most of these tests
START = "fork" if sys.platform == "linux" else "spawn"


def _get_distributed_device_type() -> str:
    return "cpu"


def _get_distributed_backend() -> str:
    return "gloo"


def _get_rank_device(rank: int) -> torch.device:
    return torch.device("cpu")


def _set_rank_device(rank: int) -> None:
    """Do nothing: processes on the CPU share the device."""


def _start_rank_processes(function: Callable, args: tuple = (), nprocs: int = 1) -> None:
    torch.multiprocessing.start_processes(
        _run, args=(auto_class, function, args), nprocs=nprocs, start_method=START
    )


def _run(rank: int, auto_class: str, function: Callable, args: tuple) -> None:
    torch.set_num_threads(1)
    from . import test_fsdp_mixin

    test_fsdp_mixin.AutoModelForCausalLM = getattr(transformers, auto_class)
    function(rank, *args)


def _run_in_group(rank: int, job: tuple[Callable, int, int, tuple, dict[str, Any]]) -> None:
    function, num_ranks, port, args, kwargs = job
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_ranks)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=num_ranks)
    try:
        function(rank, *args, **kwargs)
        torch.distributed.barrier()
    finally:
        torch.distributed.destroy_process_group()


def run_distributed(world_size: int, backend: str | None = None) -> Callable[[Callable], Callable]:
    """Return a decorator: calling the function runs it in `world_size` processes, the number of
    each before its arguments."""

    def decorate(function: Callable) -> Callable:
        def start(*args, **kwargs):
            with socket.create_server(("localhost", 0)) as listener:
                port = listener.getsockname()[1]
            job = (function, world_size, port, args, kwargs)
            _start_rank_processes(_run_in_group, args=(job,), nprocs=world_size)

        return start

    return decorate
