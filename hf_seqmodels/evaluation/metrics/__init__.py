"""The metrics, one folder each, in the form that `evaluate.load(folder)` takes."""
