#!/usr/bin/env python3
"""Writes golden.json: what an independent implementation (llama.cpp, through the package xllamacpp) makes of the default
model. Greedy tokens of a few prompts with the two best log-probs of each step.

The weights are expanded to F32 first: with quantised weights llama.cpp rounds every activation to 8 bits, an error of 0.1
and more in the logits, which would hide errors of ours.

    pip install xllamacpp gguf && tests/golden/make.py MODEL.gguf > tests/golden/golden.json
"""
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import gguf

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n",
    "Water boils at",
    "The three laws of motion are",
]
STEPS = 64

SERVER = """
import sys, time, xllamacpp as x
p = x.CommonParams()
p.model.path, p.port, p.n_ctx, p.n_parallel = sys.argv[1], int(sys.argv[2]), 4096, 1
server = x.Server(p)
while True: time.sleep(60)
"""


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=300))


def expand(model, to):
    """Copies a model with all its tensors in F32."""
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(to, bytes(reader.fields["general.architecture"].parts[-1]).decode())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(model):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-c", SERVER, model, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(url + "/health", timeout=2)
                break
            except OSError:
                time.sleep(0.1)
        rows = []
        for prompt in PROMPTS:
            tokens = post(url + "/tokenize", {"content": prompt, "add_special": True})["tokens"]
            answer = post(url + "/completion", {"prompt": prompt, "n_predict": STEPS, "temperature": 0, "n_probs": 2, "cache_prompt": False, "ignore_eos": True})
            steps = [[[t["id"], round(t["logprob"], 4)] for t in step["top_logprobs"][:2]] for step in answer["completion_probabilities"]]
            rows.append({"prompt": prompt, "prompt_tokens": tokens, "tokens": [step["id"] for step in answer["completion_probabilities"]], "best": steps})
        print("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]")
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        expand(sys.argv[1], folder + "/f32.gguf")
        main(folder + "/f32.gguf")
