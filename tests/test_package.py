"""Public names, and what importing the package may load."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hf_seqmodels

PACKAGES = (
    *("analysis", "conversion", "data", "decoding", "evaluation", "hub", "model_cards"),
    "onnx",
)
BASELINE = "from transformers import GenerationMixin, PreTrainedModel"

# What `import hf_seqmodels` may load beyond the baseline, besides itself: the small modules of
# transformers that models, tokenizers, Auto classes and pipelines are made of, in any version that
# we support. Anything new must be cheap, and named here. The base of pipelines takes 8 ms
# (transformers 5.23), or 100 ms where all of transformers' own come with it (5.17).
PIPELINES = "transformers.pipelines"
MAY_BE_LOADED = {
    "tokenizers.trainers",
    "transformers.audio_utils",
    "transformers.convert_slow_tokenizer",
    "transformers.feature_extraction_utils",
    "transformers.image_processing_backends",
    "transformers.image_processing_base",
    "transformers.image_processing_utils",
    "transformers.integrations.mistral",
    "transformers.integrations.mistral.constants",
    "transformers.modeling_layers",
    "transformers.models.auto",
    "transformers.models.auto.auto_factory",
    "transformers.models.auto.feature_extraction_auto",
    "transformers.models.auto.image_processing_auto",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.processing_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.auto.video_processing_auto",
    "transformers.models.bert",
    "transformers.models.bert.tokenization_bert_legacy",
    "transformers.models.encoder_decoder",
    "transformers.models.encoder_decoder.configuration_encoder_decoder",
    "transformers.models.speecht5",
    "transformers.models.speecht5.configuration_speecht5",
    "transformers.models.speecht5.modeling_speecht5",
    "transformers.processing_utils",
    "transformers.tokenization_utils_tokenizers",
    "transformers.utils.type_validators",
    "transformers.video_processing_utils",
    "transformers.video_utils",
}
# Opening the packages around the models must not load what they are built on either.
LOADED_WHEN_USED = {
    "babel",
    "datasets",
    "evaluate",
    "jiwer",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "pandas",
    "pyarrow",
    "sacrebleu",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.trainer",
    "transformers.trainer_seq2seq",
}


def modules_loaded_by(statement, *, after=BASELINE):
    """Return the names of the modules that a statement loads in a fresh process."""
    script = (
        f"import json, sys\n{after}\nbefore = set(sys.modules)\n{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ, check=True
    )
    return set(json.loads(finished.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_import_loads_only_what_the_list_allows():
    loaded = modules_loaded_by("import hf_seqmodels")
    assert "hf_seqmodels.models" in loaded
    others = {name for name in loaded if not name.startswith(("hf_seqmodels", PIPELINES))}
    assert others <= MAY_BE_LOADED


@pytest.mark.slow
def test_opening_the_packages_around_the_models_loads_nothing_heavy():
    packages = {f"hf_seqmodels.{name}" for name in PACKAGES}
    loaded = modules_loaded_by("import " + ", ".join(packages))
    assert packages <= loaded
    assert loaded.isdisjoint(LOADED_WHEN_USED)


def test_every_public_name_is_there():
    for name in hf_seqmodels.__all__:
        assert getattr(hf_seqmodels, name) is not None
    assert set(hf_seqmodels.__all__) <= set(dir(hf_seqmodels))


@pytest.mark.parametrize("name", PACKAGES)
def test_lazy_package_is_the_package(name):
    assert getattr(hf_seqmodels, name).__name__ == f"hf_seqmodels.{name}"


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'hf_seqmodels' has no attribute 'metrics'"):
        _ = hf_seqmodels.metrics


def calls_of(name, node):
    """Yield the calls of a function of this name below a node of the syntax tree."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name:
            yield call


def test_only_programs_print_and_every_progress_bar_closes():
    """A print in a library ends up in somebody's output; a bar that an error leaves open, in the
    next cell of their notebook."""
    files = sorted(Path(hf_seqmodels.__file__).parent.rglob("*.py"))
    assert len(files) > 50
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        may_print = set()
        closes = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "main":
                may_print.update(calls_of("print", node))
            if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
                may_print.update(calls_of("print", node))
            if isinstance(node, ast.With):
                closes.update(item.context_expr for item in node.items)
        assert set(calls_of("print", tree)) <= may_print, path
        assert set(calls_of("tqdm", tree)) <= closes, path


def test_types_are_marked_as_part_of_the_package():
    assert (Path(hf_seqmodels.__file__).parent / "py.typed").is_file()
