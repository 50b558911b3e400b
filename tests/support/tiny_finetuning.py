"""Tiny rows and options for the fine-tuning scripts; a run of a second."""

import json

SIZES = "hidden_size=12,num_hidden_layers=1,num_attention_heads=2,intermediate_size=16"
TINY_ENCODERS = {
    "seqmodels_text_encoder": SIZES + ",max_position_embeddings=40",
    "seqmodels_decoder_lm": SIZES + ",max_position_embeddings=40",
    "bert": SIZES + ",max_position_embeddings=40",
    "roberta": SIZES + ",max_position_embeddings=42,pad_token_id=0",
}


def write_rows(path, rows):
    """Write one JSON object a line and return the name of the file."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return str(path)


def write_parts(folder, rows, *, validation=7, test=6):
    """Write rows as three files: the last ones for test and validation; return their names."""
    ends = len(rows) - validation - test, len(rows) - test
    parts = {
        "train": rows[: ends[0]],
        "validation": rows[ends[0] : ends[1]],
        "test": rows[ends[1] :],
    }
    return {part: write_rows(folder / f"{part}.jsonl", rows) for part, rows in parts.items()}


def finetune_argv(files, output_dir, *more, model_type="seqmodels_text_encoder"):
    """Return the options of a run of a few steps; later options win."""
    model = [] if model_type is None else ["--model_type", model_type]
    overrides = TINY_ENCODERS.get(model_type)
    return [
        *([*model, "--config_overrides", overrides] if overrides else model),
        *(word for part in files for word in (f"--{part}_file", files[part])),
        *("--output_dir", str(output_dir), "--use_cpu", "--disable_tqdm", "true", "--seed", "3"),
        *("--per_device_train_batch_size", "4", "--per_device_eval_batch_size", "3"),
        *("--learning_rate", "0.01", "--num_train_epochs", "2", "--logging_steps", "2"),
        *more,
    ]


def predictions_of(folder):
    """Return the lines of predictions.jsonl."""
    text = (folder / "predictions.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
