"""What the learning curves show, from logs in the form of a Trainer's."""

import math

import pytest

from hf_seqmodels.analysis import learning_curves, plot_learning_curve


@pytest.fixture
def log_history():
    """Five training steps, two evaluations and the entry at the end, as a Trainer logs them."""
    history = [
        {
            "loss": 2.0 / step,
            "grad_norm": 1.0,
            "learning_rate": 1e-3,
            "epoch": step / 10,
            "step": step,
        }
        for step in range(1, 6)
    ]
    for step, loss, match in ((2, 1.1, 40.0), (4, 0.6, 70.0)):
        history.append(
            {
                "eval_loss": loss,
                "eval_runtime": 0.1,
                "eval_samples_per_second": 99.0,
                "eval_steps_per_second": 9.0,
                "eval_per": 100 - match,
                "eval_exact_match": match,
                "epoch": step / 10,
                "step": step,
            }
        )
    history.append({"train_runtime": 3.0, "train_loss": 0.9, "total_flos": 0.0, "step": 5})
    return history


@pytest.fixture
def drawn(monkeypatch):
    """Collect the figures that are saved."""
    figures = []
    save = learning_curves.save
    monkeypatch.setattr(
        learning_curves, "save", lambda figure, path: figures.append(figure) or save(figure, path)
    )
    return figures


def curves_of(figure):
    """{name in the legend: [(step, value), ...]} over both axes."""
    return {
        line.get_label(): [tuple(map(float, point)) for point in line.get_xydata()]
        for axes in figure.axes
        for line in axes.get_lines()
    }


def test_losses_and_the_score_are_drawn(log_history, tmp_path, drawn):
    returned = plot_learning_curve(log_history, tmp_path / "new" / "curve.png", title="dates")
    (figure,) = drawn
    assert returned is figure
    left, right = figure.axes
    assert curves_of(figure) == {
        "training loss (last 0.4)": [(step, 2.0 / step) for step in range(1, 6)],
        "evaluation loss (last 0.6)": [(2, 1.1), (4, 0.6)],
        "exact match (last 70)": [(2, 40.0), (4, 70.0)],
    }
    assert len(left.get_lines()) == 2 and len(right.get_lines()) == 1
    assert right.get_ylabel() == "exact match"
    assert left.get_title(loc="left") == "dates"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(curves_of(figure))
    assert (tmp_path / "new" / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("metric", ["per", "eval_per"])
def test_the_score_can_be_chosen(log_history, tmp_path, drawn, metric):
    plot_learning_curve(log_history, tmp_path / "x.png", metric=metric)
    assert curves_of(drawn[0])["per (last 30)"] == [(2, 60.0), (4, 30.0)]


def test_the_loss_as_score_is_drawn_once(log_history, tmp_path, drawn):
    plot_learning_curve(log_history, tmp_path / "x.png", metric="eval_loss")
    assert len(drawn[0].axes) == 1


def test_a_score_that_was_not_logged_is_refused(log_history, tmp_path):
    with pytest.raises(ValueError, match=r"logged \(eval_per, eval_exact_match\), got 'bleu'"):
        plot_learning_curve(log_history, tmp_path / "x.png", metric="bleu")


def test_unknown_scores_are_drawn_in_the_order_of_the_log(tmp_path, drawn):
    history = [{"eval_zeta": 1.0, "eval_alpha": 2.0, "step": 1}]
    plot_learning_curve(history, tmp_path / "x.png")
    assert list(curves_of(drawn[0])) == ["zeta (last 1)"]


def test_one_kind_of_loss_is_enough(tmp_path, drawn):
    plot_learning_curve([{"loss": 1.0, "step": 1}], tmp_path / "a.png")
    plot_learning_curve([{"eval_loss": 1.0, "step": 1}], tmp_path / "b.png")
    assert [len(figure.axes) for figure in drawn] == [1, 1]
    (line,) = drawn[0].axes[0].get_lines()
    assert line.get_marker() == "o", "a single point is visible"


def test_steps_logged_again_and_broken_values_do_not_show(tmp_path, drawn):
    history = [
        {"loss": 3.0, "step": 1},
        {"loss": 2.0, "step": 2},
        {"loss": math.nan, "step": 3},
        {"loss": math.inf, "step": 4},
        {"loss": 9.0},
        {"loss": True, "step": 5},
        {"loss": "high", "step": 6},
        {"loss": 1.5, "step": 2},
    ]
    plot_learning_curve(history, tmp_path / "x.png")
    assert curves_of(drawn[0]) == {"training loss (last 1.5)": [(1, 3.0), (2, 1.5)]}


@pytest.mark.parametrize(("last", "scale"), [(0.5, "linear"), (0.01, "log"), (0.0, "linear")])
def test_far_apart_losses_are_on_a_logarithmic_axis(tmp_path, drawn, last, scale):
    plot_learning_curve([{"loss": 3.0, "step": 1}, {"loss": last, "step": 9}], tmp_path / "x.png")
    assert drawn[0].axes[0].get_yscale() == scale


@pytest.mark.parametrize(
    "history", [[], [{"train_loss": 1.0, "step": 3}], [{"loss": math.nan, "step": 1}]]
)
def test_a_log_without_losses_is_refused(history, tmp_path):
    with pytest.raises(ValueError, match="at least one step with 'loss', 'eval_loss' or a score"):
        plot_learning_curve(history, tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
