"""THE table of skips: every test of transformers' suites that does not run for a family, and why.

`make conformance` holds the suites to it: a test that is skipped without an entry fails, and so
does an entry that says "never" of a test that ran. docs/conformance.md shows the table.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

RNN_SEQ2SEQ = "seqmodels_rnn_seq2seq"
TRANSFORMER_SEQ2SEQ = "seqmodels_transformer_seq2seq"
DECODER_LM = "seqmodels_decoder_lm"
RNN_LM = "seqmodels_rnn_lm"
TEXT_ENCODER = "seqmodels_text_encoder"

RECURRENT = (RNN_SEQ2SEQ, RNN_LM)
ENCODER_DECODERS = (RNN_SEQ2SEQ, TRANSFORMER_SEQ2SEQ)
EVERY_FAMILY = (*ENCODER_DECODERS, DECODER_LM, RNN_LM, TEXT_ENCODER)

When = Literal["machine", "asked", "never"]
WHEN: dict[When, str] = {
    "machine": "runs where the hardware and the packages are there",
    "asked": "runs with HF_CONF_DIST=1",
    "never": "does not apply",
}


@dataclass(frozen=True)
class Skip:
    """One entry of the table.

    Args:
        tests: names of tests, * for any letters.
        when: key of WHEN, when the tests run after all.
        reason: why they do not, one sentence or more.
        families: model types that the entry is about.
        is_ours: whether this repository skips the tests; else they skip themselves.
    """

    tests: tuple[str, ...]
    when: When
    reason: str
    families: tuple[str, ...] = EVERY_FAMILY
    is_ours: bool = False

    def covers(self, test: str, model_type: str) -> bool:
        """Return whether the entry is about a test of a family."""
        return model_type in self.families and any(fnmatchcase(test, name) for name in self.tests)


SKIPS = (
    Skip(
        (
            "test_flash_attn_*",
            "test_sdpa_can_dispatch_on_flash",
            "test_sdpa_can_compile_dynamic",
            "test_flex_attention_with_grads",
            "test_torch_compile_for_training",
            "test_kernels_can_load_without_crashing",
        ),
        "machine",
        "They need a GPU, and most of them flash-attn or kernels.",
    ),
    Skip(
        (
            "test_cpu_offload",
            "test_disk_offload_*",
            "test_model_parallelism",
            "test_can_load_with_device_context_manager",
            "test_can_load_with_global_device_set",
        ),
        "machine",
        "They need an accelerator, or several.",
    ),
    Skip(
        ("test_resize_*_with_deepspeed", "test_resize_*_with_deepspeed_multi_gpu"),
        "machine",
        "They need DeepSpeed and an accelerator.",
    ),
    Skip(
        ("test_tp_generation_quantized",),
        "machine",
        "It needs torchao, and several processes are started on request only.",
        (TRANSFORMER_SEQ2SEQ, DECODER_LM),
    ),
    Skip(
        (
            "test_hsdp_save_load",
            "test_hsdp_save_load_dcp",
            "test_hsdp_grad_accumulation_vs_single_device_0_replicate_and_shard",
        ),
        "machine",
        "They need four CPU cores, and several processes are started on request only.",
    ),
    Skip(
        ("test_tp_forward_*", "test_tp_backward", "test_tp_generation"),
        "asked",
        "Two processes on the CPU take minutes.",
        (TRANSFORMER_SEQ2SEQ, DECODER_LM),
    ),
    Skip(
        ("test_tp_forward_*", "test_tp_backward"),
        "asked",
        "Two processes on the CPU take minutes.",
        (TEXT_ENCODER,),
    ),
    Skip(
        (
            "test_fsdp2_sharding_structure_*",
            "test_fsdp2_save_load",
            "test_fsdp2_save_load_dcp",
            "test_fsdp2_bf16_training",
            "test_fsdp2_plan_vs_ddp_*",
            "test_hsdp_grad_accumulation_vs_single_device_1_replicate_only",
        ),
        "asked",
        "Two processes on the CPU take minutes.",
    ),
    Skip(
        ("test_tp_generation", "test_tp_generation_quantized"),
        "never",
        "An encoder does not generate.",
        (TEXT_ENCODER,),
        is_ours=True,
    ),
    Skip(
        (
            "test_tp_forward_*",
            "test_tp_backward",
            "test_tp_generation",
            "test_tp_generation_quantized",
            "test_tp_plan_matches_params",
            "test_tied_head_has_a_tp_plan_entry",
        ),
        "never",
        "Tensor parallelism splits attention and feed-forward layers; a recurrence would have to "
        "talk at every step, so recurrent families declare no plan.",
        RECURRENT,
    ),
    Skip(
        (
            "test_fsdp2_expert_parallel_*",
            "test_hsdp_grad_accumulation_vs_single_device_2_expert_parallel",
        ),
        "never",
        "No family has experts.",
    ),
    Skip(
        (
            "test_moe_*",
            "test_output_router_logits_from_config",
            "test_eager_matches_batched_and_grouped_inference_*",
        ),
        "never",
        "No family has experts.",
    ),
    Skip(
        ("test_training_overfit",),
        "never",
        "The suite trains decoders: labels are the inputs, and generate() has to repeat them. The "
        "other families train in tests/contract/test_contract_training.py.",
        (*ENCODER_DECODERS, TEXT_ENCODER),
        is_ours=True,
    ),
    Skip(
        (
            "test_attention_outputs",
            "test_eager_matches_sdpa_inference_*",
            "test_sdpa_can_dispatch_non_composite_models",
            "test_can_set_attention_dynamically",
        ),
        "never",
        "A recurrent family has no self-attention to choose an implementation for.",
        RECURRENT,
    ),
    Skip(
        (
            "test_attn_implementation_composite_models",
            "test_sdpa_can_dispatch_composite_models",
            "test_can_set_attention_dynamically_composite_model",
            "test_internal_model_config_and_subconfig_are_same",
        ),
        "never",
        "No model is composed of models with configs of their own.",
    ),
    Skip(
        ("test_get_*_features_*",),
        "never",
        "They pass over models without images, sound and video, and then check nothing.",
        is_ours=True,
    ),
    Skip(("test_vision_axial_rope",), "never", "It is about models of images."),
    Skip(
        (
            "test_model_rope_scaling_from_config_*",
            "test_model_rope_scaling_frequencies",
            "test_model_rope_with_partial_rotation",
        ),
        "never",
        "Rotary positions have one setting, rope_theta.",
    ),
    Skip(
        ("test_resize_position_vector_embeddings",),
        "never",
        "Learned positions are as many as max_position_embeddings; nothing resizes them.",
    ),
    Skip(
        ("test_sliding_window_mask",),
        "never",
        "A window is on where sliding_window is set; there is no second setting that turns it off. "
        "tests/models checks windows against plain loops.",
    ),
    Skip(
        ("test_keep_in_fp32_modules", "test_keep_in_fp32_modules_exist"),
        "never",
        "No module needs float32 in a model of half precision.",
    ),
    Skip(
        ("test_reverse_loading_mapping", "test_can_load_from_already_mapped_keys"),
        "never",
        "Checkpoints hold the parameters under their own names; nothing is converted on loading.",
    ),
    Skip(
        ("test_capture_outputs_decorator",),
        "never",
        "Recurrent stacks return the states of their layers themselves.",
        RECURRENT,
    ),
    Skip(
        ("test_can_capture_specific_layers_hidden_states",),
        "never",
        "Recurrent stacks return the states of all layers; encoder-decoders have them of two "
        "sides, which the test does not know.",
        (*RECURRENT, TRANSFORMER_SEQ2SEQ),
    ),
    Skip(
        ("test_encoder_decoder_loss_no_double_shift",),
        "never",
        "It is about encoder-decoders.",
        (DECODER_LM, RNN_LM, TEXT_ENCODER),
    ),
    Skip(
        ("test_causal_lm_loss_honors_shift_labels",),
        "never",
        "It is about decoders.",
        (*ENCODER_DECODERS, TEXT_ENCODER),
    ),
)


def skip_of(test: str, model_type: str) -> Skip | None:
    """Return the entry about a test of a family; None if the test has to run."""
    return next((skip for skip in SKIPS if skip.covers(test, model_type)), None)
