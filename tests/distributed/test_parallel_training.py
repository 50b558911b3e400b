"""DDP: two processes with other numbers of targets train as one on all rows."""

import pytest
import torch

from gloo_group import run_driver
from hf_seqmodels import RnnLMConfig, RnnLMForCausalLM
from hf_seqmodels.auto_classes import FAMILIES
from stateful_parallel import train

pytestmark = pytest.mark.slow


def test_gradients_and_losses_of_two_processes_are_those_of_one(tmp_path):
    alone, together = tmp_path / "alone", tmp_path / "stateful"
    torch.manual_seed(0)
    config = RnnLMConfig(
        vocab_size=11,
        embedding_size=5,
        hidden_size=7,
        num_hidden_layers=1,
        embedding_dropout=0.0,
        hidden_dropout=0.0,
    )
    RnnLMForCausalLM(config).save_pretrained(together)
    expected = train(together, 4, alone)
    names = run_driver("parallel_training.py", tmp_path)
    families = {family.model_type for family in FAMILIES}
    assert {name.partition("-")[0] for name in names} == families | {"stateful"}

    after = torch.load(together / "after.pt")
    for name, value in expected.model.state_dict().items():
        torch.testing.assert_close(after["weights"][name], value, msg=name)
    assert after["loss"] == pytest.approx(expected.evaluate()["eval_loss"], rel=1e-10)
    folder = together / "parallel" / "checkpoint-3"
    states = [torch.load(folder / f"recurrent_state_{rank}.pt") for rank in range(2)]
    whole = torch.load(alone / "checkpoint-3" / "recurrent_state.pt")
    for index, part in enumerate(whole["states"][0]):  # each process keeps the state of its rows
        shared = torch.cat([state["states"][0][index] for state in states])
        torch.testing.assert_close(shared, part)
