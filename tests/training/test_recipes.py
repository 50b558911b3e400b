"""Every published recipe is a valid command, and says what it is."""

import re
from pathlib import Path

import finetune_arguments
import pytest
import run_clm
import run_mlm
import run_seq2seq
import text_arguments
import yaml
from finetune_run import option_classes_of
from run_classification import ClassificationTask
from run_ner import TokenTask
from run_qa import QuestionTask
from script_arguments import parse_arguments, read_overrides, typed_overrides
from script_models import check_model_choice
from seq2seq_arguments import settle_arguments
from seq2seq_data import Corpus, Example
from transformers import CONFIG_MAPPING

from hf_seqmodels import TextEncoderConfig

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "training" / "recipes").glob("*.yaml"))
PATH_OPTIONS = ("train_file", "validation_file", "test_file", "output_dir", "cache_dir")


@pytest.fixture(params=RECIPES, ids=lambda path: path.stem)
def recipe(request):
    return request.param


def test_there_are_recipes():
    assert {"dates", "g2p_dutch", "g2p_bulgarian", "g2p_cmudict", "inflection_german"} <= {
        path.stem for path in RECIPES
    }


FINETUNING = {
    "run_classification.py": ClassificationTask,
    "run_ner.py": TokenTask,
    "run_qa.py": QuestionTask,
}


def task_of(recipe):
    """The task of the fine-tuning script that a recipe names in its head; None for others."""
    text = recipe.read_text(encoding="utf-8")
    return next((task for script, task in FINETUNING.items() if script in text), None)


def script_of(recipe):
    """The module of the script that a recipe names in its head."""
    text = recipe.read_text(encoding="utf-8")
    if "run_mlm.py" in text:
        return run_mlm
    is_language_model = "run_clm.py" in text or "demo_lm.py" in text
    return run_clm if is_language_model else run_seq2seq


def test_every_option_of_the_recipe_is_valid_together(recipe, tmp_path):
    if task_of(recipe) is not None:
        check_finetuning(recipe, task_of(recipe), tmp_path)
        return
    script = script_of(recipe)
    options = [str(recipe), "--output_dir", str(tmp_path / "run"), "--use_cpu"]
    model_options, data_options, args = parse_arguments(script.OPTION_CLASSES, options)
    check_model_choice(model_options, *script.MODEL_KIND)
    if script in (run_clm, run_mlm):
        script.check_options(data_options, args)
        text_arguments.settle_arguments(args, data_options, {"train", "validation"}, given={})
    else:
        rows = [Example("a", ["b"])]
        settle_arguments(args, data_options, Corpus(train=rows, validation=rows), given={})
    overrides = read_overrides(model_options.config_overrides)
    config_class = CONFIG_MAPPING[model_options.model_type]
    config = config_class(**typed_overrides(config_class, overrides))
    assert config.is_encoder_decoder == (script is run_seq2seq)


def check_finetuning(recipe, task_class, tmp_path):
    """Check the options of a fine-tuning recipe; a checkpoint is named on the command line."""
    options = [str(recipe), "--output_dir", str(tmp_path / "run"), "--use_cpu"]
    classes = option_classes_of(task_class)
    model_options, data_options, args = parse_arguments(classes, options)
    if model_options.model_type is None:
        model_options.model_name_or_path = "checkpoint"
        assert "--model_name_or_path" in recipe.read_text(encoding="utf-8")
    check_model_choice(
        *(model_options, task_class.head_classes, task_class.model_kind), may_change_checkpoint=True
    )
    if model_options.model_type is None:  # the checkpoints of our recipes are text encoders
        overrides = read_overrides(model_options.config_overrides)
        TextEncoderConfig(**typed_overrides(TextEncoderConfig, overrides))
    finetune_arguments.check_numbers(data_options)
    task_class(data_options, args).check_options()


def test_recipes_name_no_files(recipe):
    assert not set(yaml.safe_load(recipe.read_text(encoding="utf-8"))) & set(PATH_OPTIONS)


def test_recipes_say_how_they_are_run_and_fix_a_seed(recipe):
    text = recipe.read_text(encoding="utf-8")
    assert f"training/recipes/{recipe.name}" in text or re.search(r"training/demo\w*\.py", text)
    assert re.search(r"^seed: \d+", text, re.MULTILINE)
    assert text.startswith("# ")
