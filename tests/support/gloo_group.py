"""Two processes that form a group on the CPU, forked from one that has imported everything.

A driver is a script that ends with `main(jobs)`; `run_driver` starts it from a test. Its jobs run
in both processes, one after the other, and a failure of one does not hide the next.
"""

import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed

import hf_seqmodels

SUPPORT = Path(__file__).parent
RANKS = 2
# a process of its own takes longer to import everything than most jobs
START = "fork" if sys.platform == "linux" else "spawn"

Job = Callable[[Path], None]


def run_driver(script: str, folder: Path, *names: str, timeout: int = 900) -> list[str]:
    """Run the jobs of a driver and return the names of all that it ran.

    Args:
        script: file name of the driver, in this folder.
        folder: where the jobs may write.
        names: of the jobs to run; none means all.
        timeout: in seconds.

    Raises:
        AssertionError: if a job failed in a process, with what the processes printed.
    """
    roots = [str(SUPPORT), str(Path(hf_seqmodels.__file__).parents[1])]
    roots += os.environ.get("PYTHONPATH", "").split(os.pathsep)
    settings = {"PYTHONPATH": os.pathsep.join(filter(None, roots)), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, str(SUPPORT / script), str(folder), *names],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, result.stdout[-6000:]
    reports = [json.loads((folder / f"report_{rank}.json").read_text()) for rank in range(RANKS)]
    failures = [
        f"{name}, process {rank}:\n{error}"
        for rank, report in enumerate(reports)
        for name, error in report.items()
        if error
    ]
    assert not failures, "\n\n".join(failures) + "\n\n" + result.stdout[-3000:]
    return list(reports[0])


def main(jobs: dict[str, Job]) -> None:
    """Run the jobs that the command line names, in two processes.

    Args:
        jobs: {name: function of a folder}, which both processes call in turn.
    """
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(jobs)
    torch.set_num_threads(1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    chosen = {name: jobs[name] for name in names}
    torch.multiprocessing.start_processes(
        _run_jobs, args=(chosen, folder, port), nprocs=RANKS, start_method=START
    )


def _run_jobs(rank: int, jobs: dict[str, Job], folder: Path, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=RANKS)
    report = {}
    for name, job in jobs.items():
        error = None
        try:
            job(folder / name)
        except Exception:
            error = traceback.format_exc()
        report[name] = error
        outcomes: list[bool | None] = [None] * RANKS
        torch.distributed.all_gather_object(outcomes, error is not None)
        if any(outcomes) and not all(outcomes):
            break  # the processes may no longer be at the same place
    (folder / f"report_{rank}.json").write_text(json.dumps(report), encoding="utf-8")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def is_first() -> bool:
    """Tell the process that compares and writes from the other."""
    return torch.distributed.get_rank() == 0
