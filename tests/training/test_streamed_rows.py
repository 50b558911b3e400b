"""Streams dealt to processes: every row once in a pass, the steps of one process."""

import itertools
from types import SimpleNamespace

import pytest
from streamed_rows import StreamedRows
from torch.utils.data import DataLoader

NUM_ROWS = 11


def stream_of(process: int, *, processes: int, buffer: int = 4, rows=range(NUM_ROWS)):
    """Return what one process reads."""
    args = SimpleNamespace(seed=3, world_size=processes, process_index=process)
    options = SimpleNamespace(shuffle_buffer_size=buffer)
    return StreamedRows(lambda number: ((row, number) for row in rows), options, args)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_every_row_goes_to_one_process_in_every_pass(num_workers):
    taken = []
    for process in range(3):
        loader = DataLoader(stream_of(process, processes=3), batch_size=1, num_workers=num_workers)
        taken += [tuple(map(int, batch)) for batch in itertools.islice(loader, 2 * NUM_ROWS)]
    expected = {(row, number) for number in range(6) for row in range(NUM_ROWS)}
    assert len(taken) == len(expected)  # none twice
    assert set(taken) == expected


def test_a_step_of_two_processes_holds_the_rows_of_one_with_twice_the_batch():
    whole = DataLoader(stream_of(0, processes=1), batch_size=6)
    parts = [DataLoader(stream_of(p, processes=2), batch_size=3) for p in range(2)]
    for batch, *shares in itertools.islice(zip(whole, *parts, strict=True), 8):
        dealt = [row for share in shares for row in zip(*map(list, share), strict=True)]
        assert sorted(dealt) == sorted(zip(*map(list, batch), strict=True))


def test_the_order_is_drawn_anew_for_every_pass_and_bounded_by_the_buffer():
    rows = list(itertools.islice(stream_of(0, processes=1), 2 * NUM_ROWS))
    orders = [[row for row, number in rows if number == wanted] for wanted in (0, 1)]
    assert orders[0] != orders[1] != sorted(orders[1])
    # a row can wait, but none comes before the buffer has reached it
    assert all(row <= place + 4 for order in orders for place, row in enumerate(order))
    unshuffled = itertools.islice(stream_of(0, processes=1, buffer=1), NUM_ROWS)
    assert [row for row, _ in unshuffled] == list(range(NUM_ROWS))


def test_a_text_without_rows_is_refused():
    with pytest.raises(ValueError, match="must hold a row of at least two known tokens"):
        next(iter(stream_of(0, processes=2, rows=())))
