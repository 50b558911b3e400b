"""Graphs of a model run by torch instead of onnxruntime, with nothing exported."""

import json
from types import SimpleNamespace

import torch

from hf_seqmodels.onnx.exporting import describe, make_graphs
from hf_seqmodels.onnx.graphs import traceable
from hf_seqmodels.onnx.runtime import KINDS


class EagerSession:
    """What the loop uses of an InferenceSession, on the module that would have been traced."""

    def __init__(self, model, graph):
        self.model, self.graph = model, graph

    def get_inputs(self):
        return [SimpleNamespace(name=value.name) for value in self.graph.inputs]

    def get_outputs(self):
        return [SimpleNamespace(name=name) for name in self.graph.outputs]

    def run(self, names, inputs):
        given = [torch.from_numpy(inputs[value.name]) for value in self.graph.inputs]
        for tensor, value in zip(given, self.graph.inputs, strict=True):
            assert tensor.dtype == value.dtype and tensor.dim() == len(value.shape), value
        with torch.no_grad(), traceable(self.model):
            outputs = self.graph.module(*given)
        named = dict(zip(self.graph.outputs, outputs, strict=True))
        return [named[name].numpy() for name in names]


def eager_graphs(model):
    """Return what `load_graphs` would return of an export of the model."""
    graphs = make_graphs(model)
    settings = json.loads(json.dumps(describe(model, graphs)))
    sessions = {name: EagerSession(model, graph) for name, graph in graphs.graphs.items()}
    return KINDS[settings["kind"]](sessions, settings)
