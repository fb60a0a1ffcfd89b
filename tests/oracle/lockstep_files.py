"""Files that lockstep reads and writes, by hand and with numpy alone."""
import json
import pathlib
import struct

import numpy as np


def write_tokens(path, tokens):
    """A token file in llm.c's format, uint16."""
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(tokens)
    path.write_bytes(header.tobytes() + np.asarray(tokens, np.uint16).tobytes())


def write_images(folder, images, labels):
    """The training part of an IDX folder; images [count x rows x columns], bytes."""
    for stem, array in (("train-images-idx3-ubyte", images), ("train-labels-idx1-ubyte", labels)):
        array = np.asarray(array, np.uint8)
        header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        (folder / stem).write_bytes(header + array.tobytes())


def read_weights(run):
    """name -> f64 array of a run's newest checkpoint."""
    data = (pathlib.Path(run) / "checkpoints/latest/model-00000.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    weights = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        weights[name] = np.frombuffer(data[begin:end], "<f4").reshape(entry["shape"]).astype(np.float64)
    return weights


def read_train_lines(run):
    """The train lines of a run's metrics.jsonl, in order."""
    lines = (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "train"]


def write_safetensors(path, tensors):
    """name -> array, written as f32."""
    header, offset = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + 4 * array.size]}
        offset += 4 * array.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)
