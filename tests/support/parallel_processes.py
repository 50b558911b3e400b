"""Several processes of one program that know of each other, as a launcher would start them."""

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path


def run_in_parallel(
    command: Sequence[str], *, num_processes: int, folder: Path, python_path: str
) -> None:
    """Run a command in several processes and wait for all; when one fails, end the others.

    Args:
        command: of every process.
        num_processes: how many.
        folder: takes what they print.
        python_path: PYTHONPATH of the processes.

    Raises:
        AssertionError: if a process fails, with what it printed.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": python_path}
    workers, outputs = [], []
    for rank in map(str, range(num_processes)):
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(num_processes)}
        outputs.append(folder / f"output_{rank}.txt")
        with outputs[-1].open("w") as file:
            workers.append(
                subprocess.Popen(
                    command, env=os.environ | shared | own, stdout=file, stderr=subprocess.STDOUT
                )
            )
    try:
        while any(worker.poll() is None for worker in workers):
            if any(worker.poll() for worker in workers):
                break
            time.sleep(0.05)
        for worker, output in zip(workers, outputs, strict=True):
            assert not worker.poll(), output.read_text()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
