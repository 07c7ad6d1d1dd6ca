#!/usr/bin/env python3
"""An attention that `sightline check --process` can check, in plain Python: causal, half-split rotation, grouped heads.

    sightline check --process 'python3 examples/subjects/plain_attention.py' --rope half_split
    sightline check --process 'python3 examples/subjects/plain_attention.py top_left' --rope half_split

A word behind it makes it wrong, so that you can see what the check then says.
"""
import json
import math
import sys

FAULTS = {
    "top_left": "the causal triangle starts at the first key, also when keys are cached",
    "restart": "queries of each call stand at position 0, 1, 2, ... again",
    "tiled": "query head h reads key head h mod num_kv_heads",
    "scale": "the scale is 1/head_dim",
    "row0": "every row of a batch stands where row 0 does",
}


def rotate(x, pos, theta):
    half = len(x) // 2
    y = list(x)
    for i in range(half):
        angle = pos * theta ** (-2 * i / len(x))
        y[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        y[i + half] = x[i] * math.sin(angle) + x[i + half] * math.cos(angle)
    return y


def rows(tensor):
    """[tokens][heads][dim] of a flat array."""
    tokens, heads, dim = tensor["shape"]
    data = tensor["data"]
    return [[data[(t * heads + h) * dim:(t * heads + h + 1) * dim] for h in range(heads)] for t in range(tokens)]


def attend(call, fault):
    q, k, v = rows(call["q"]), rows(call["k"]), rows(call["v"])
    q_pos, kv_pos = call["q_rope_pos"], call["kv_rope_pos"]
    if fault == "restart":
        q_pos = list(range(len(q)))
    rope = call["spec"]["rope"]
    if rope["pairing"] != "none":
        q = [[rotate(x, p, rope["theta"]) for x in row] for row, p in zip(q, q_pos)]
        k = [[rotate(x, p, rope["theta"]) for x in row] for row, p in zip(k, kv_pos)]
    heads, kv_heads, dim = len(q[0]), len(k[0]), len(q[0][0])
    scale = 1 / dim if fault == "scale" else dim ** -0.5
    out = []
    for i, row in enumerate(q):
        newest = i if fault == "top_left" else i + len(k) - len(q)
        for h in range(heads):
            g = h % kv_heads if fault == "tiled" else h // (heads // kv_heads)
            weights = [math.exp(scale * sum(a * b for a, b in zip(row[h], k[j][g]))) for j in range(newest + 1)]
            total = sum(weights)
            out += [sum(w * v[j][g][c] for j, w in enumerate(weights)) / total for c in range(len(v[0][g]))]
    return out


def attend_batch(calls, fault):
    """Rows asked together."""
    if fault == "row0":
        first = {name: calls[0][name] for name in ("q_rope_pos", "kv_rope_pos")}
        calls = [{**call, **first} for call in calls]
    return [attend(call, fault) for call in calls]


def main():
    fault = sys.argv[1] if len(sys.argv) > 1 else None
    if fault and fault not in FAULTS:
        sys.exit(f"no such fault; there are: {', '.join(FAULTS)}")
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "hello":
            answer = {"takes": ["positions", "chunks", "batch"]}
        elif request["do"] == "answer_batch":
            answer = {"rows": [{"out": out} for out in attend_batch(request["rows"], fault)]}
        else:
            answer = {"out": attend(request, fault)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
