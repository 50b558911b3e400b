"""Models as ONNX graphs or programs of torch.export, and decoding on onnxruntime.

from hf_seqmodels import RnnSeq2SeqForConditionalGeneration
from hf_seqmodels.onnx import export_onnx, load_graphs

export_onnx(RnnSeq2SeqForConditionalGeneration.from_pretrained("my-model"), "exported")
load_graphs("exported").generate([[5, 9, 2]], num_beams=4)

On the command line: python -m hf_seqmodels.onnx FOLDER EXPORTED. See docs/export.md.
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.onnx.exporting import export_folder, export_onnx, export_programs
    from hf_seqmodels.onnx.runtime import load_graphs

__all__ = ["export_folder", "export_onnx", "export_programs", "load_graphs"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "export_folder": "exporting",
        "export_onnx": "exporting",
        "export_programs": "exporting",
        "load_graphs": "runtime",
    },
)
