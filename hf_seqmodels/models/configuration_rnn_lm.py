"""Settings of the recurrent language model."""

from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig


@strict
class RnnLMConfig(PreTrainedConfig):
    """Settings of the recurrent language model.

    Sizes are widths of vectors, rates are probabilities in [0, 1). A combination that cannot be
    honoured raises when the config is made. AWD-LSTM (Merity et al. 2018, arXiv:1708.02182) is
    `embedding_size=400, hidden_size=1150, last_layer_size=400, num_hidden_layers=3,
    tie_word_embeddings=True, variational_dropout=True` with all the rates below.

    Args:
        vocab_size: number of tokens.
        embedding_size: width of the embeddings.
        hidden_size: width of the recurrent layers.
        last_layer_size: width of the top layer; None means `hidden_size`. With the width of the
            embeddings a tied output layer needs no projection.
        num_hidden_layers: layers of the recurrent stack.
        cell_type: recurrence: Elman 1990, GRU (Cho et al. 2014), LSTM (Hochreiter and Schmidhuber
            1997, with forget gate).
        elman_activation: f in h = f(W x + U h + b); only "elman" cells read it.
        gru_reset: whether the reset gate acts "after" the recurrent matrix product (torch, cuDNN)
            or "before" it (Cho et al. 2014); only "gru" cells read it.
        layer_connection: how the output y of layer i >= 1 arises from its input x: "none" F(x),
            "residual" x + F(x), "highway" g F(x) + (1-g) x, or "dense", where layer i reads all
            below.
        tie_word_embeddings: the output layer uses the embedding table (Inan et al. 2017; Press and
            Wolf 2017), behind a projection where the top layer has another width.
        word_dropout: rate at which whole words are dropped: their embedding is zero wherever they
            stand in the batch (Gal and Ghahramani 2016; AWD-LSTM's embedding dropout).
        embedding_dropout: rate on the embeddings.
        hidden_dropout: rate between layers.
        output_dropout: rate before the output layer; None means `hidden_dropout`.
        weight_dropout: rate on the recurrent weights U of every layer, one mask per forward pass
            (DropConnect: Wan et al. 2013; on U: Merity et al. 2018).
        variational_dropout: embedding, hidden and output dropout keep one mask per sequence (Gal
            and Ghahramani 2016).
        activation_regularization: alpha; the training loss gains alpha times the mean square of the
            top layer's outputs behind dropout (Merity et al. 2017, arXiv:1708.01009).
        temporal_activation_regularization: beta; the training loss gains beta times the mean square
            of the change of the top layer's outputs from one token to the next.
        label_smoothing: probability mass spread evenly over the vocabulary in the loss in training
            mode; the loss in evaluation mode is never smoothed.
        chunked_loss: compute the training loss and its gradients some tokens at a time, so that the
            logits of the whole batch never exist; a call with labels in training mode then returns
            no logits.
        max_position_embeddings: longest length that tools should plan for, in tokens; the model has
            no limit.
        initializer: "orthogonal" (the package's own, see `SeqModelsPreTrainedModel`, embeddings
            from N(0, initializer_range)) or "uniform", every weight and bias from
            U(-initializer_range, initializer_range) (Zaremba et al. 2014).
        initializer_range: standard deviation of the embedding table, or half the width of the
            uniform distribution.
        implementation: "fast" (whole-sequence kernels) or "reference" (a loop over time that reads
            like the equations; same numbers, slower).
        use_cache: return the recurrent state.
        pad_token_id: id that fills batches and follows the end of generated rows.
        bos_token_id: id of the begin token.
        eos_token_id: id or ids that end a sequence.
        is_encoder_decoder: fixed; there is one side.
    """

    model_type = "seqmodels_rnn_lm"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 (transformers' own declaration)
    base_model_fsdp_plan = {  # noqa: RUF012 (transformers' own declaration)
        "embed_tokens": "free_full_weight",
        "stack": "free_full_weight",
    }

    vocab_size: int = 8000
    embedding_size: int = 256
    hidden_size: int = 256
    last_layer_size: int | None = None
    num_hidden_layers: int = 2
    cell_type: Literal["elman", "gru", "lstm"] = "lstm"
    elman_activation: Literal["tanh", "relu"] = "tanh"
    gru_reset: Literal["after", "before"] = "after"
    layer_connection: Literal["none", "residual", "highway", "dense"] = "none"
    tie_word_embeddings: bool = False
    word_dropout: float | int = 0.0
    embedding_dropout: float | int = 0.1
    hidden_dropout: float | int = 0.1
    output_dropout: float | int | None = None
    weight_dropout: float | int = 0.0
    variational_dropout: bool = False
    activation_regularization: float | int = 0.0
    temporal_activation_regularization: float | int = 0.0
    label_smoothing: float | int = 0.0
    chunked_loss: bool = True
    max_position_embeddings: int = 1024
    initializer: Literal["orthogonal", "uniform"] = "orthogonal"
    initializer_range: float | int = 0.1
    implementation: Literal["fast", "reference"] = "fast"
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    is_encoder_decoder: bool = False

    @property
    def layer_types(self) -> list[str]:
        """What transformers calls a layer that carries a state of fixed size."""
        return ["linear_attention"] * self.num_hidden_layers

    @property
    def top_size(self) -> int:
        """Width of the top layer's outputs."""
        return self.hidden_size if self.last_layer_size is None else self.last_layer_size

    @property
    def top_dropout(self) -> float:
        """Rate before the output layer."""
        return self.hidden_dropout if self.output_dropout is None else self.output_dropout

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
        """Check that every count and width is positive, and that joined widths are one."""
        for name in (
            "vocab_size",
            "embedding_size",
            "hidden_size",
            "last_layer_size",
            "num_hidden_layers",
            "max_position_embeddings",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        joins = self.layer_connection in ("residual", "highway") and self.num_hidden_layers > 1
        if joins and self.top_size != self.hidden_size:
            raise ValueError(
                f"layer_connection={self.layer_connection!r} adds the input of a layer to its "
                f"output, which needs one width, got hidden_size={self.hidden_size} and "
                f"last_layer_size={self.last_layer_size}. Leave last_layer_size at None or use "
                f"'none' or 'dense'."
            )

    def validate_rates(self):
        """Check that every dropout and the label smoothing is a probability below 1, and that what
        scales a term of the loss is not negative."""
        for name in (
            "word_dropout",
            "embedding_dropout",
            "hidden_dropout",
            "output_dropout",
            "weight_dropout",
            "label_smoothing",
        ):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must be in [0, 1), got {value}.")
        for name in ("activation_regularization", "temporal_activation_regularization"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}.")
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
                f"{self.cell_type!r}. Leave elman_activation at 'tanh' or change the cell."
            )

    def validate_special_tokens(self):
        """Check that special ids exist."""
        eos_token_ids = (
            self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        )
        for token_id in (self.pad_token_id, self.bos_token_id, *eos_token_ids):
            if token_id is not None and not 0 <= token_id < self.vocab_size:
                raise ValueError(
                    f"Special token ids must lie in the vocabulary [0, {self.vocab_size}), got "
                    f"{token_id}. Pass the ids of your tokenizer, or None where it has none."
                )

    def validate_direction(self):
        """Check that the family stays a language model."""
        if self.is_encoder_decoder:
            raise ValueError("is_encoder_decoder is fixed to False for this family, got True.")


__all__ = ["RnnLMConfig"]
