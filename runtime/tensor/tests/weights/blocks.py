"""Writes blocks.txt: random blocks of each format and their values as PyPI's `gguf` decodes them.

    pip install gguf && python blocks.py > blocks.txt

A line has the format's name, the bytes of some blocks, and the bits of the values as 32-bit words, both in hexadecimal.
"""

import gguf
import numpy as np

# Where the binary16 scales of a block are: they must be finite, everything else may be any bits.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
FLOATS = [0.0, -0.0, 1.0, -1.5, 3.1415927, 65504.0, 2.0**-14, 2.0**-24, -(2.0**-20), 1e-3]
random = np.random.default_rng(2)

for name in ["F32", "F16", "BF16", *SCALES]:
    kind = gguf.GGMLQuantizationType[name]
    if name in SCALES:
        blocks = random.integers(0, 256, gguf.GGML_QUANT_SIZES[kind][1], dtype=np.uint8)
        for at in SCALES[name]:
            blocks[at : at + 2] = np.frombuffer(np.float16(random.normal(0, 0.1)).tobytes(), np.uint8)
    elif name == "BF16":
        blocks = (np.array(FLOATS, "<f4").view("<u4") >> 16).astype("<u2").view(np.uint8)
    else:
        blocks = np.array(FLOATS, "<f2" if name == "F16" else "<f4").view(np.uint8)
    typed = {"F32": "<f4", "F16": "<f2"}.get(name, np.uint8)
    values = gguf.dequantize(blocks.view(typed).reshape(1, -1), kind).astype("<f4").ravel()
    print(name, blocks.tobytes().hex(), "".join(f"{word:08x}" for word in values.view("<u4")))
