"""Inference by ONNX Runtime and OpenVINO, from a module exported to ONNX.

Their packages are imported when the backend is made: without them its row says what is missing.
"""

import tempfile
from pathlib import Path

import torch

WORST_DEVIATION = 1e-2  # of the largest result: an export that computes something else is no peer


def export(job, folder):
    """Writes the module as an ONNX file; returns its path."""
    path = str(Path(folder) / "model.onnx")
    inputs = (job.parts()[0][0],)
    with torch.no_grad():
        torch.onnx.export(job.module, inputs, path, dynamo=True, verbose=False)
    return path


def checked(job, call):
    """The call, after its result has been compared with that of the module."""
    with torch.no_grad():
        expected = job.module(job.parts()[-1][0])
    deviation = (torch.from_numpy(call()).reshape(expected.shape) - expected).abs().max()
    share = float(deviation / expected.abs().max())
    if not share <= WORST_DEVIATION:
        raise RuntimeError(
            f"[benchmarks] the exported model deviates by {share:.1e} of the largest result, "
            f"limit {WORST_DEVIATION}. Do not compare with it."
        )
    return call


def session_of(path):
    """An ONNX Runtime session with as many threads as torch has."""
    import onnxruntime as ort  # only here: it need not be installed

    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return ort.InferenceSession(path, options, ["CPUExecutionProvider"])


def compiled_of(path, hint="LATENCY"):
    """An OpenVINO model in float32, with as many threads as torch has.

    Args:
        path: of the ONNX file.
        hint: what it is optimized for: ``"LATENCY"`` or ``"THROUGHPUT"``.
    """
    import openvino as ov  # only here: it need not be installed

    settings = {
        "PERFORMANCE_HINT": hint,
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    return ov.Core().compile_model(path, "CPU", settings)


def onnxruntime(job):
    """A call of an ONNX Runtime session."""
    with tempfile.TemporaryDirectory() as folder:
        session = session_of(export(job, folder))
    name = session.get_inputs()[0].name
    feeds = [{name: part[0].numpy()} for part in job.parts()]

    def call():
        for feed in feeds:
            out = session.run(None, feed)[0]
        return out

    return checked(job, call)


def openvino(job):
    """A call of an OpenVINO request, in float32 and for the least latency."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = compiled_of(export(job, folder))
    request = compiled.create_infer_request()
    arrays = [part[0].numpy() for part in job.parts()]

    def call():
        for array in arrays:
            out = request.infer([array], share_inputs=True, share_outputs=True)
        return out[0]

    return checked(job, call)
