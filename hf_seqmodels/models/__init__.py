"""What a checkpoint needs to load, and nothing else.

The same files are imported by the installed package and shipped beside the weights on the Hub, so
this folder is flat and every import between its files names the file itself, one dot in front.

Reading order: `configuration_<family>.py` (the options), `modeling_<family>.py` (reads top to
bottom), then the parts it is made of: `layers_recurrent.py`, `layers_attention.py`,
`layers_decoder.py`, `cache_recurrent.py`, or `layers_transformer.py`, `layers_positions.py`,
`layers_heads.py`; `outputs.py` (with the loss), `pretrained_base.py`.
Beside the models stand `tokenization_seq2seq.py`, a source and a target tokenizer as one, and the
`pipeline_*` files.

Import rule: a configuration and a tokenizer import no sibling; parts and pipelines import only
parts; a modeling file imports its own configuration and parts, never another modeling file; nothing
here imports the rest of the package.
"""
