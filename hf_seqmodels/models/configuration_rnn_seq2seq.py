# pyright: basic
"""Settings of the recurrent encoder-decoder."""

import copy
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig


@strict
class RnnSeq2SeqConfig(PreTrainedConfig):
    """Settings of the recurrent encoder-decoder, with or without attention.

    Sizes are widths of vectors, rates are probabilities in [0, 1). A combination that cannot be
    honoured raises when the config is made.

    Args:
        vocab_size: number of source tokens.
        decoder_vocab_size: number of target tokens; None means one vocabulary for both sides.
        embedding_size: width of source and target embeddings.
        hidden_size: width of the decoder state, and of the attentional vector.
        encoder_hidden_size: width of one encoder output; None means `hidden_size`. A bidirectional
            encoder gives each direction half of it.
        num_encoder_layers: layers of the encoder stack.
        num_decoder_layers: layers of the decoder stack.
        cell_type: recurrence used on both sides: Elman 1990, GRU (Cho et al. 2014), LSTM
            (Hochreiter and Schmidhuber 1997, with forget gate).
        elman_activation: f in h = f(W x + U h + b); only "elman" cells read it.
        gru_reset: whether the reset gate acts "after" the recurrent matrix product (torch, cuDNN)
            or "before" it (Cho et al. 2014); only "gru" cells read it.
        bidirectional_encoder: read the source in both directions.
        attention_scorer: how keys are compared with the query: "dot", "scaled_dot", "general"
            (bilinear), "additive" (Bahdanau et al. 2015), "multi_head" (Vaswani et al. 2017). None
            is the classic encoder-decoder, the encoder's last state fed as context at every decoder
            step.
        num_attention_heads: heads of the "multi_head" scorer, a divisor of `hidden_size`; 1 for the
            others.
        attention_query: "current" (Luong et al. 2015: state first, then context, then the
            attentional vector tanh(W [c; s])) or "previous" (Bahdanau et al. 2015: context from the
            last state enters the cell). Without a scorer there is no query and "current" stands for
            nothing.
        input_feeding: the attentional vector of the last step enters the cell (Luong et al. 2015,
            3.3).
        coverage_attention: the attention also reads how much each source token has been attended
            to so far, score(q, k, c) = v . tanh(W q + U k + w c) (See et al. 2017, equation 11);
            needs the "additive" scorer, and makes every step depend on the attention before it.
        coverage_loss_weight: weight of sum_j min(alpha_tj, c_tj) in the loss in training mode, c
            the attention of all steps before, against attending to a token twice (See et al. 2017,
            equations 12 and 13); needs attention.
        guided_alignment_weight: weight of the distance between attention (the mean of its heads)
            and the `alignments` of a batch in the loss in training mode (Chen et al. 2016); needs
            attention.
        pointer_generator: write words of the source, too, by copying them along the attention (See
            et al. 2017); needs attention and one vocabulary for both sides.
        max_copied_words: how many distinct unknown words of one source can be copied. They have the
            ids behind the vocabulary, vocab_size + k for the k-th, and the scores as many columns
            more; only `pointer_generator` reads it.
        layer_connection: how the output y of layer i >= 1 arises from its input x: "none" F(x),
            "residual" x + F(x), "highway" g F(x) + (1-g) x, or "dense", where layer i reads all
            below.
        bridge: first decoder state: "copy" of the encoder's last states layer by layer, a learned
            "projection" of the top layer's last state, or "zeros".
        reverse_source: read the source from its end (Sutskever et al. 2014); outputs keep the
            input's order.
        share_embeddings: one embedding table for source and target; needs one vocabulary.
        tie_word_embeddings: the output layer uses the target embedding table.
        embedding_dropout: rate on the embeddings of both sides.
        hidden_dropout: rate between layers and before the output layer.
        attention_dropout: rate on attention weights.
        variational_dropout: embedding and hidden dropout keep one mask per sequence (Gal and
            Ghahramani 2016).
        label_smoothing: probability mass spread evenly over the target vocabulary in the loss in
            training mode; the loss in evaluation mode is never smoothed.
        max_position_embeddings: longest length that tools should plan for, in tokens; the model has
            no limit.
        initializer_range: standard deviation of the embedding tables at initialisation.
        implementation: "fast" (whole-sequence kernels where no step depends on attention) or
            "reference" (a loop over time that reads like the equations; same numbers, slower).
        use_cache: return the recurrent state for generation.
        pad_token_id: id that fills batches of both sides and follows the end of generated rows.
        bos_token_id: id of the begin token.
        eos_token_id: id or ids that end a sequence.
        unk_token_id: id of the unknown token, which `pointer_generator` reads words to copy as.
        decoder_start_token_id: first decoder input.
        is_encoder_decoder: fixed; tells generate() to encode first.
    """

    model_type = "seqmodels_rnn_seq2seq"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 (transformers' own declaration)
    attribute_map = {"num_hidden_layers": "num_encoder_layers"}  # noqa: RUF012
    base_model_fsdp_plan = {  # noqa: RUF012 (transformers' own declaration)
        "encoder.embed_tokens": "free_full_weight",
        "encoder.stack": "free_full_weight",
        "decoder.embed_tokens": "free_full_weight",
    }

    vocab_size: int = 8000
    decoder_vocab_size: int | None = None
    embedding_size: int = 256
    hidden_size: int = 256
    encoder_hidden_size: int | None = None
    num_encoder_layers: int = 1
    num_decoder_layers: int = 1
    cell_type: Literal["elman", "gru", "lstm"] = "gru"
    elman_activation: Literal["tanh", "relu"] = "tanh"
    gru_reset: Literal["after", "before"] = "after"
    bidirectional_encoder: bool = True
    attention_scorer: Literal["dot", "scaled_dot", "general", "additive", "multi_head"] | None = (
        "additive"
    )
    num_attention_heads: int = 1
    attention_query: Literal["previous", "current"] = "current"
    input_feeding: bool = False
    coverage_attention: bool = False
    coverage_loss_weight: float | int = 0.0
    guided_alignment_weight: float | int = 0.0
    pointer_generator: bool = False
    max_copied_words: int = 32
    layer_connection: Literal["none", "residual", "highway", "dense"] = "none"
    bridge: Literal["copy", "projection", "zeros"] = "projection"
    reverse_source: bool = False
    share_embeddings: bool = False
    tie_word_embeddings: bool = False
    embedding_dropout: float | int = 0.1
    hidden_dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    variational_dropout: bool = False
    label_smoothing: float | int = 0.0
    max_position_embeddings: int = 1024
    initializer_range: float | int = 0.1
    implementation: Literal["fast", "reference"] = "fast"
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    unk_token_id: int | None = None
    decoder_start_token_id: int | None = 1
    is_encoder_decoder: bool = True

    @property
    def source_state_size(self) -> int:
        """Width of one encoder output."""
        return self.hidden_size if self.encoder_hidden_size is None else self.encoder_hidden_size

    @property
    def target_vocab_size(self) -> int:
        """Number of target tokens, V in the shapes of the model."""
        return self.vocab_size if self.decoder_vocab_size is None else self.decoder_vocab_size

    def get_text_config(
        self, decoder: bool | None = None, encoder: bool | None = None
    ) -> PreTrainedConfig:
        """Return this config; for the decoder alone, with the target's vocabulary as `vocab_size`.

        transformers' own version drops the prefixes of `decoder_...` and `encoder_...` fields,
        which would write None into `vocab_size` here.

        Args:
            decoder: ask for the decoder's side.
            encoder: ask for the encoder's side.

        Returns:
            This object, or a copy where the two vocabularies differ.
        """
        if not decoder or encoder or self.target_vocab_size == self.vocab_size:
            return self
        decoder_config = copy.copy(self)
        decoder_config.vocab_size = self.target_vocab_size
        return decoder_config

    def update_from_string(self, update_str: str):
        """Change fields as transformers does, and check that they fit together.

        Args:
            update_str: `name=value,name=value`; `--config_overrides` of scripts comes here.

        Raises:
            ValueError: if a name is unknown, or the fields do not fit together.
        """
        super().update_from_string(update_str)
        self.validate()

    def validate_sizes(self):
        """Check that every count and width is positive."""
        for name in (
            "vocab_size",
            "decoder_vocab_size",
            "embedding_size",
            "hidden_size",
            "encoder_hidden_size",
            "num_encoder_layers",
            "num_decoder_layers",
            "max_position_embeddings",
            "max_copied_words",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        if self.bidirectional_encoder and self.source_state_size % 2:
            raise ValueError(
                f"A bidirectional encoder gives each direction half of encoder_hidden_size, which "
                f"must be even, "
                f"got {self.source_state_size}. Choose an even encoder_hidden_size or "
                f"bidirectional_encoder=False."
            )

    def validate_rates(self):
        """Check that every dropout and the label smoothing is a probability below 1."""
        for name in ("embedding_dropout", "hidden_dropout", "attention_dropout", "label_smoothing"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be in [0, 1), got {value}.")
        for name in ("coverage_loss_weight", "guided_alignment_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}.")
        if not self.initializer_range > 0:
            raise ValueError(f"initializer_range must be positive, got {self.initializer_range}.")

    def validate_cell(self):
        """Check that cell options are only set for the cell that reads them."""
        if self.gru_reset != "after" and self.cell_type != "gru":
            raise ValueError(
                f"gru_reset={self.gru_reset!r} needs cell_type='gru', got {self.cell_type!r}. "
                "Leave gru_reset at 'after' or change the cell."
            )
        if self.elman_activation != "tanh" and self.cell_type != "elman":
            raise ValueError(
                f"elman_activation={self.elman_activation!r} needs cell_type='elman', got "
                f"{self.cell_type!r}. "
                "Leave elman_activation at 'tanh' or change the cell."
            )

    def validate_attention(self):
        """Check that scorer, widths, heads, query and input feeding fit together."""
        if self.attention_scorer is None:
            self._refuse_attention_options()
        elif (
            self.attention_scorer in ("dot", "scaled_dot")
            and self.source_state_size != self.hidden_size
        ):
            raise ValueError(
                f"attention_scorer={self.attention_scorer!r} compares vectors of one width, got "
                f"encoder_hidden_size={self.source_state_size} and hidden_size={self.hidden_size}. "
                "Make them equal or use 'general', 'additive' or 'multi_head'."
            )
        if self.attention_scorer == "multi_head":
            if self.num_attention_heads < 1 or self.hidden_size % self.num_attention_heads:
                raise ValueError(
                    f"num_attention_heads must divide hidden_size={self.hidden_size}, got "
                    f"{self.num_attention_heads}."
                )
        elif self.num_attention_heads != 1:
            raise ValueError(
                f"num_attention_heads={self.num_attention_heads} needs "
                f"attention_scorer='multi_head', "
                f"got {self.attention_scorer!r}. Set num_attention_heads=1 or change the scorer."
            )
        if self.input_feeding and self.attention_query != "current":
            raise ValueError(
                "input_feeding feeds the attentional vector, which exists with "
                "attention_query='current' only, "
                f"got {self.attention_query!r}. With 'previous' the context enters the cell "
                f"already: "
                "set input_feeding=False."
            )

        if self.coverage_attention and self.attention_scorer != "additive":
            raise ValueError(
                "coverage_attention adds a term to the network of the 'additive' scorer, got "
                f"attention_scorer={self.attention_scorer!r}. Change the scorer, or use "
                "coverage_loss_weight alone, which works with every scorer."
            )

    def _refuse_attention_options(self):
        for name, neutral in (
            ("attention_query", "current"),
            ("input_feeding", False),
            ("attention_dropout", 0),
            ("coverage_attention", False),
            ("coverage_loss_weight", 0),
            ("guided_alignment_weight", 0),
            ("pointer_generator", False),
        ):
            value = getattr(self, name)
            if value != neutral:
                raise ValueError(
                    f"{name}={value!r} needs attention, but attention_scorer is None. "
                    f"Choose a scorer or leave {name} at {neutral!r}."
                )

    def validate_bridge(self):
        """Check that a copied state fits the decoder."""
        same_layers = self.num_encoder_layers == self.num_decoder_layers
        if self.bridge == "copy" and not (
            same_layers and self.source_state_size == self.hidden_size
        ):
            raise ValueError(
                "bridge='copy' needs as many layers and the same width on both sides, got "
                f"{self.num_encoder_layers} encoder and {self.num_decoder_layers} decoder layers, "
                f"encoder_hidden_size={self.source_state_size} and hidden_size={self.hidden_size}. "
                "Use bridge='projection' or make them equal."
            )

    def validate_vocabularies(self):
        """Check that shared tables have one size, that special ids exist on the target side, and
        the id of padding on both."""
        if self.share_embeddings and self.target_vocab_size != self.vocab_size:
            raise ValueError(
                f"share_embeddings needs one vocabulary, got vocab_size={self.vocab_size} and "
                f"decoder_vocab_size={self.decoder_vocab_size}. Set share_embeddings=False or "
                f"decoder_vocab_size=None."
            )
        if self.decoder_start_token_id is None:
            raise ValueError("decoder_start_token_id must be set: it is the first decoder input.")
        eos_token_ids = (
            self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        )
        for token_id in (
            self.pad_token_id,
            self.bos_token_id,
            self.decoder_start_token_id,
            *eos_token_ids,
        ):
            if token_id is not None and not 0 <= token_id < self.target_vocab_size:
                raise ValueError(
                    f"Special token ids must lie in the target vocabulary [0, "
                    f"{self.target_vocab_size}), "
                    f"got {token_id}. Pass the ids of your tokenizer."
                )
        if self.pad_token_id is not None and self.pad_token_id >= self.vocab_size:
            raise ValueError(
                f"pad_token_id fills sources as well, so it must lie in the source vocabulary "
                f"[0, {self.vocab_size}), got {self.pad_token_id}. Give both tokenizers the same "
                f"padding id."
            )

    def validate_pointer_generator(self):
        """Check that source and target words can be told to be the same."""
        if not self.pointer_generator:
            return
        if self.decoder_vocab_size is not None:
            raise ValueError(
                "pointer_generator copies source words into the target, so both need one "
                f"vocabulary, got vocab_size={self.vocab_size} and decoder_vocab_size="
                f"{self.decoder_vocab_size}. Train one tokenizer for both sides "
                "(run_seq2seq.py: --shared_tokenizer), and set decoder_vocab_size=None."
            )
        if self.unk_token_id is None or not 0 <= self.unk_token_id < self.vocab_size:
            raise ValueError(
                "pointer_generator reads words outside the vocabulary as the unknown token, so "
                f"unk_token_id must lie in [0, {self.vocab_size}), got {self.unk_token_id}. Pass "
                "the id of your tokenizer."
            )

    def validate_direction(self):
        """Check that the family stays an encoder-decoder."""
        if not self.is_encoder_decoder:
            raise ValueError("is_encoder_decoder is fixed to True for this family, got False.")


__all__ = ["RnnSeq2SeqConfig"]
