"""How cuDNN answers right and wrong calls: one table, for the fake and for real libraries.

A row: what is right or wrong, the call (in the terms of ask.py), the class of the answer, and where
the question differs from ask.BASE, an LSTM with I 5, H 6, T 4, N 3.

    taken        accepted: a call on descriptors succeeds; one that needs a device passed all
                 checks of its arguments and reached the first call of CUDA
    wrong        BAD_PARAM
    unsupported  NOT_SUPPORTED
    internal     INTERNAL_ERROR
    dies         the process ends by a signal
"""

RELU, TANH, LSTM, GRU = range(4)
NO_BIAS, INPUT_BIAS, DOUBLE_BIAS, STATE_BIAS = range(4)
FLOAT, DOUBLE, HALF, BFLOAT16, INT8 = 0, 1, 2, 9, 3
STANDARD, SMALL_H = 0, 3
SEQ, BATCH = 0, 2  # layouts of x and y
NAN, INF = float("nan"), float("inf")
HUGE = 2**31 - 1

T, W, U, I, DIES = "taken", "wrong", "unsupported", "internal", "dies"  # noqa: E741


def rnn(**more):
    return {"rnn": more}


def unsorted(layout, flags=1, lengths=(2, 4, 3), **more):
    return {"rnn": {"flags": flags}, "x": {"layout": layout, "lengths": list(lengths)}, **more}


def algo(number, **more):
    return {"rnn": {"algo": number, "dtype": HALF, "I": 128, "H": 128, **more}}


PROJECTED = {"rnn": {"P": 4}}
DEEP = {"rnn": {"L": 2, "direction": 1}}

ROWS = [
    # cudnnSetRNNDescriptor_v8
    *[(f"cell {n}", "set_rnn", T if 0 <= n < 4 else W, rnn(cell=n)) for n in (*range(5), -1)],
    *[(f"bias mode {n}", "set_rnn", T if 0 <= n < 4 else W, rnn(bias=n)) for n in (*range(5), -1)],
    *[(f"direction {n}", "set_rnn", T if n < 2 else W, rnn(direction=n)) for n in (0, 1, 2)],
    *[(f"input mode {n}", "set_rnn", T if n < 2 else W, rnn(input_mode=n)) for n in (0, 1, 2)],
    *[(f"algo {n}", "set_rnn", T if n < 4 else W, rnn(algo=n)) for n in (0, 3, 4)],
    *[(f"math {n}", "set_rnn", T if 0 <= n < 4 else W, rnn(math=n)) for n in (*range(5), -1)],
    *[(f"flags {n}", "set_rnn", T if n < 2 else W, rnn(flags=n)) for n in (0, 1, 2, 3)],
    ("float64", "set_rnn", T, rnn(dtype=DOUBLE, precision=DOUBLE)),
    ("float16", "set_rnn", T, rnn(dtype=HALF)),
    ("float16 computed in float16", "set_rnn", T, rnn(dtype=HALF, precision=HALF)),
    ("bfloat16", "set_rnn", T, rnn(dtype=BFLOAT16)),
    ("bfloat16 computed in bfloat16", "set_rnn", U, rnn(dtype=BFLOAT16, precision=BFLOAT16)),
    ("float32 computed in float64", "set_rnn", U, rnn(precision=DOUBLE)),
    ("float32 computed in float16", "set_rnn", U, rnn(precision=HALF)),
    ("float64 computed in float32", "set_rnn", U, rnn(dtype=DOUBLE)),
    ("int8", "set_rnn", U, rnn(dtype=INT8)),
    ("no such dtype", "set_rnn", U, rnn(dtype=77)),
    ("I 0", "set_rnn", W, rnn(I=0)),
    ("I -1", "set_rnn", W, rnn(I=-1)),
    ("H 0", "set_rnn", W, rnn(H=0)),
    ("H -1", "set_rnn", W, rnn(H=-1, P=-1)),
    ("L 0", "set_rnn", W, rnn(L=0)),
    ("L -1", "set_rnn", W, rnn(L=-1)),
    ("P 0", "set_rnn", W, rnn(P=0)),
    ("P -1", "set_rnn", W, rnn(P=-1)),
    ("P < H", "set_rnn", T, PROJECTED),
    ("P > H", "set_rnn", U, rnn(P=7)),
    *[(f"P < H, cell {n}", "set_rnn", U, rnn(P=4, cell=n)) for n in (RELU, TANH, GRU)],
    ("P < H, algo 3", "set_rnn", U, rnn(P=4, algo=SMALL_H)),
    *[(f"algo 3, bias mode {b}", "set_rnn", U, rnn(algo=SMALL_H, bias=b))
      for b in (NO_BIAS, INPUT_BIAS, STATE_BIAS)],
    ("algo 3, float64", "set_rnn", U, rnn(algo=SMALL_H, dtype=DOUBLE, precision=DOUBLE)),
    ("descriptor NULL", "set_rnn", W, {"null": ["set_rnn"]}),
    ("skip input with I unlike H, described", "set_rnn", T, rnn(input_mode=1)),
    ("many of all", "set_rnn", T, rnn(L=40, direction=1, H=1000, P=100, I=999)),
    # the clip
    ("clip", "clip", T, {"clip": [1, -0.5, 0.5]}),
    ("clip to one value", "clip", T, {"clip": [1, 0.5, 0.5]}),
    ("clip crossed", "clip", W, {"clip": [1, 0.5, -0.5]}),
    ("clip crossed and off", "clip", W, {"clip": [0, 0.5, -0.5]}),
    ("clip NaN left", "clip", W, {"clip": [1, NAN, 0.5]}),
    ("clip NaN right", "clip", W, {"clip": [1, 0.5, NAN]}),
    ("clip infinite", "clip", T, {"clip": [1, -INF, INF]}),
    ("clip of a GRU", "clip", T, {"clip": [1, -1, 1], "rnn": {"cell": GRU}}),
    ("clip, no such mode", "clip", T, {"clip": [5, -1, 1]}),
    ("clip NULL", "clip", W, {"clip": [1, -1, 1], "null": ["clip"]}),
    # the dropout's descriptor
    ("dropout", "set_dropout", T, {}),
    ("dropout, handle NULL", "set_dropout", W, {"null": ["handle"]}),
    # the weight space
    ("weight size", "weight_size", T, {}),
    ("weight size, handle NULL", "weight_size", W,
     {"null": ["handle"], "dropout": "created"}),
    ("weight size, descriptor NULL", "weight_size", W, {"null": ["rnn"]}),
    # cudnnSetRNNDataDescriptor
    *[(f"x: layout {n}", "set_x", T if 0 <= n < 3 else W, {"x": {"layout": n}})
      for n in (0, 2, 3, -1)],
    *[(f"x: {key} {n}", "set_x", W, {"x": {key: n, "lengths": [4, 4, 4]}})
      for key in ("T", "N", "width") for n in (0, -1)],
    ("x: float64", "set_x", T, {"x": {"dtype": DOUBLE}}),
    ("x: float16", "set_x", T, {"x": {"dtype": HALF}}),
    ("x: bfloat16", "set_x", T, {"x": {"dtype": BFLOAT16}}),
    ("x: int8", "set_x", U, {"x": {"dtype": INT8}}),
    ("x: no such dtype", "set_x", W, {"x": {"dtype": 77}}),
    ("x: NULL", "set_x", W, {"null": ["set_x"]}),
    ("x: no lengths", "set_x", W, {"null": ["x_lengths"]}),
    ("x: no fill", "set_x", T, {"x": {"fill": False}}),
    *[(f"x: layout {layout}, lengths {lengths}", "set_x", answer,
       {"x": {"layout": layout, "lengths": lengths}})
      for layout, lengths, answer in [
          (SEQ, [5, 4, 4], W), (SEQ, [4, -1, 4], W), (SEQ, [2, 4, 3], T), (SEQ, [4, 0, 4], T),
          (SEQ, [0, 0, 0], T), (SEQ, [3, 2, 1], T), (BATCH, [2, 4, 3], T), (BATCH, [0, 4, 3], T),
          (BATCH, [0, 0, 0], T), (BATCH, [5, 4, 4], W)]],
    # cudnnSetTensorNdDescriptor, for hDesc and cDesc
    ("h: 3 dims", "set_h", T, {}),
    ("h: 2 dims", "set_h", T, {"h": {"dims": [3, 6]}}),
    ("h: 4 dims", "set_h", T, {"h": {"dims": [1, 3, 6, 1]}}),
    ("h: a zero", "set_h", W, {"h": {"dims": [1, 0, 6], "strides": [6, 6, 1]}}),
    ("h: negative", "set_h", W, {"h": {"dims": [1, -3, 6], "strides": [18, 6, 1]}}),
    ("h: no such dtype", "set_h", W, {"h": {"dtype": 77}}),
    # cudnnGetRNNTempSpaceSizes
    ("sizes", "sizes", T, {}),
    ("sizes, no such mode", "sizes", W, {"mode": 2}),
    ("sizes, no place for the reserve", "sizes", T, {"null": ["reserve_out"]}),
    *[(f"sizes, {name} NULL", "sizes", W,
       {"null": [name], "unset": ["weight_size"], "dropout": "created"})
      for name in ("handle", "rnn", "x_desc")],
    ("sizes, x not set", "sizes", W, {"unset": ["x"]}),
    ("sizes, RNN not set", "sizes", T, {"unset": ["rnn", "weight_size"]}),
    ("sizes, x of another width", "sizes", W, {"x": {"width": 7}}),
    ("sizes, x of another dtype", "sizes", W, {"x": {"dtype": HALF}}),
    ("sizes, lengths without padded I/O", "sizes", T, unsorted(SEQ, 0)),
    ("sizes, batch-major without padded I/O", "sizes", T, {"x": {"layout": BATCH}}),
    ("sizes, skip input with I unlike H", "sizes", T, rnn(input_mode=1)),
    *[(f"sizes, algo 3, cell {cell}, H {h}", "sizes", answer, algo(SMALL_H, cell=cell, H=h))
      for cell, h, answer in [(LSTM, 192, T), (LSTM, 193, U), (GRU, 192, T), (GRU, 193, U),
                              (TANH, 384, T), (TANH, 385, U), (RELU, 384, T)]],
    ("sizes, bfloat16, algo 3, H 193", "sizes", U, algo(SMALL_H, dtype=BFLOAT16, H=193)),
    ("sizes, bfloat16, capability 8.0", "sizes", T,
     {"rnn": {"dtype": BFLOAT16}, "capability": 80}),
    ("sizes, bfloat16, capability 7.5", "sizes", U,
     {"rnn": {"dtype": BFLOAT16}, "capability": 75}),
    # cudnnRNNForward: descriptors
    ("forward", "forward", T, {}),
    ("forward, deep", "forward", T, DEEP),
    ("forward, projected", "forward", T, PROJECTED),
    *[(f"forward, cell {n}", "forward", T, rnn(cell=n)) for n in (RELU, TANH, GRU)],
    *[(f"forward, bias mode {n}", "forward", T, rnn(bias=n)) for n in (0, 1, 3)],
    ("forward, float64", "forward", T, rnn(dtype=DOUBLE, precision=DOUBLE)),
    ("forward, float16", "forward", T, rnn(dtype=HALF)),
    ("forward, bfloat16", "forward", T, rnn(dtype=BFLOAT16)),
    ("forward, bfloat16, capability 7.5", "forward", U,
     {"rnn": {"dtype": BFLOAT16}, "capability": 75, "unset": ["sizes"]}),
    ("forward, clip", "forward", T, {"clip": [1, -1, 1]}),
    ("forward, skip input", "forward", T, rnn(input_mode=1, I=6)),
    ("forward, skip input with I unlike H", "forward", W, rnn(input_mode=1)),
    *[(f"forward, {name} NULL", "forward", W,
       {"null": [name], "unset": ["weight_size", "sizes"], "dropout": "created"})
      for name in ("handle", "rnn")],
    ("forward, xDesc NULL", "forward", W, {"null": ["x_desc"], "unset": ["sizes"]}),
    ("forward, yDesc NULL", "forward", W, {"null": ["y_desc"]}),
    ("forward, x not set", "forward", W, {"unset": ["x", "sizes"]}),
    ("forward, y not set", "forward", W, {"unset": ["y"]}),
    ("forward, RNN not set", "forward", I, {"unset": ["rnn", "weight_size", "sizes"]}),
    ("forward, no such mode", "forward", T, {"mode": 2, "unset": ["sizes"]}),
    ("forward, x of another width", "forward", W, {"x": {"width": 7}, "unset": ["sizes"]}),
    ("forward, x and y of another dtype", "forward", W, {"x": {"dtype": HALF}, "unset": ["sizes"]}),
    ("forward, y of another dtype", "forward", W, {"y": {"dtype": HALF}}),
    ("forward, y of another width", "forward", W, {"y": {"width": 7}}),
    ("forward, y one direction wide", "forward", W, {**DEEP, "y": {"width": 6}}),
    ("forward, y as wide as H, projected", "forward", W, {**PROJECTED, "y": {"width": 6}}),
    ("forward, y of another T", "forward", W, {"y": {"T": 5}}),
    ("forward, y of another N", "forward", W, {"y": {"N": 2, "lengths": [4, 4]}}),
    ("forward, y of another layout", "forward", W, {"y": {"layout": BATCH}}),
    ("forward, y of other lengths", "forward", W,
     unsorted(SEQ, y={"lengths": [2, 3, 4]})),
    # states
    ("forward, hDesc of 4 dims", "forward", T, {"h": {"dims": [1, 3, 6, 1]}}),
    ("forward, hDesc of 2 dims", "forward", W, {"h": {"dims": [3, 6]}}),
    ("forward, hDesc: L*D off", "forward", W, {"h": {"dims": [2, 3, 6]}}),
    ("forward, hDesc: N off", "forward", W, {"h": {"dims": [1, 4, 6]}}),
    ("forward, hDesc: H off", "forward", W, {"h": {"dims": [1, 3, 5]}}),
    ("forward, hDesc: H for P", "forward", W, {**PROJECTED, "h": {"dims": [1, 3, 6]}}),
    ("forward, hDesc of another dtype", "forward", T, {"h": {"dtype": DOUBLE}}),
    ("forward, hDesc not packed", "forward", W, {"h": {"strides": [36, 12, 2]}}),
    ("forward, hDesc padded by the row", "forward", W, {"h": {"strides": [24, 8, 1]}}),
    ("forward, hDesc: stride of size 1", "forward", T, {"h": {"strides": [99, 6, 1]}}),
    ("forward, hDesc not set", "forward", W, {"unset": ["h"]}),
    ("forward, cDesc: L*D off", "forward", W, {"c": {"dims": [2, 3, 6]}}),
    ("forward, cDesc: N off", "forward", W, {"c": {"dims": [1, 4, 6]}}),
    ("forward, cDesc: P for H", "forward", W, {**PROJECTED, "c": {"dims": [1, 3, 4]}}),
    ("forward, cDesc not packed", "forward", W, {"c": {"strides": [36, 12, 2]}}),
    ("forward, cDesc of another dtype", "forward", T, {"c": {"dtype": DOUBLE}}),
    *[(f"forward, {name} NULL", "forward", T, {"null": [name]})
      for name in ("hx", "hy", "cx", "cy", "x", "y")],
    ("forward, no states", "forward", T, {"null": ["hx", "hy", "cx", "cy", "h_desc", "c_desc"]}),
    ("forward, hDesc NULL with hx", "forward", W, {"null": ["h_desc", "hy"]}),
    ("forward, hDesc NULL with hy", "forward", W, {"null": ["h_desc", "hx"]}),
    ("forward, cDesc NULL with cx", "forward", W, {"null": ["c_desc", "cy"]}),
    ("forward, cDesc NULL with cy", "forward", W, {"null": ["c_desc", "cx"]}),
    ("forward, GRU with c", "forward", T, rnn(cell=GRU)),
    ("forward, GRU with c, cDesc NULL", "forward", W, {"rnn": {"cell": GRU}, "null": ["c_desc"]}),
    ("forward, GRU with c, cDesc off", "forward", W,
     {"rnn": {"cell": GRU}, "c": {"dims": [1, 4, 6]}}),
    # memory
    ("forward, W NULL", "forward", W, {"null": ["weights"]}),
    ("forward, W a byte short", "forward", W, {"weight_bytes": -1}),
    ("forward, W longer", "forward", T, {"weight_bytes": 100}),
    ("forward, W at an odd byte", "forward", T, {"shift": {"weights": 1}}),
    ("forward, x at an odd byte", "forward", T, {"shift": {"x": 1}}),
    ("forward, workspace NULL", "forward", W, {"null": ["workspace"]}),
    ("forward, workspace a byte short", "forward", W, {"workspace_bytes": -1}),
    ("forward, workspace longer", "forward", T, {"workspace_bytes": 100}),
    ("forward, reserve in inference", "forward", T, {"reserve_bytes": 100}),
    *[(f"forward, dropout {how}, {layers} layers", "forward", T,
       {"dropout": how, "rnn": {"L": layers}})
      for how in ("created", "destroyed", "null") for layers in (1, 2)],
    # lengths
    *[(f"forward, layout {layout}, padded I/O {flag}, lengths {lengths}", "forward", answer,
       {"rnn": {"flags": flag}, "x": {"layout": layout, "lengths": lengths}})
      for layout, flag, lengths, answer in [
          (SEQ, 0, [4, 3, 2], W), (SEQ, 0, [2, 4, 3], W), (SEQ, 0, [3, 3, 3], W),
          (SEQ, 1, [4, 4, 4], T), (SEQ, 1, [4, 3, 2], T), (SEQ, 1, [2, 4, 3], T),
          (SEQ, 1, [3, 3, 3], T), (SEQ, 1, [0, 4, 3], T),
          (BATCH, 0, [4, 4, 4], W), (BATCH, 0, [4, 3, 2], W), (BATCH, 1, [4, 4, 4], T),
          (BATCH, 1, [2, 4, 3], T), (BATCH, 1, [0, 4, 3], T)]],
    *[(f"forward, layout {layout}, workspace for lengths {lengths}", "forward", answer,
       unsorted(layout, sized_for=lengths))
      for layout in (SEQ, BATCH)
      for lengths, answer in [([1, 1, 1], W), ([2, 4, 2], W), ([4, 4, 4], T), ([3, 3, 3], T)]],
    # the persistent algorithms
    ("forward, algo 3", "forward", T, algo(SMALL_H)),
    *[(f"forward, algo 3, lengths {n}", "forward", U,
       {**algo(SMALL_H, flags=1), "x": {"lengths": n}}) for n in ([4, 3, 2], [3, 3, 3])],
    ("forward, algo 3, H 193", "forward", U, {**algo(SMALL_H, H=193), "unset": ["sizes"]}),
    ("forward, algo 3, deep", "forward", T, algo(SMALL_H, L=2, direction=1)),
]  # fmt: skip

# Where a library answers differently. The table is that of 9.28, the newest.
OLDER = {
    "bfloat16": U,
    "x: bfloat16": U,
    "sizes, bfloat16, capability 8.0": U,
    "forward, bfloat16": U,
    "h: 2 dims": W,
}
LAX = {"x: no lengths": DIES}
# PyTorch 2.4 to 2.6 install 9.1.0, 2.9 installs 9.10.2: no bfloat16; 9.1.0 supports no sequence of
# length 0.
BEFORE_9_13 = {what: answer for what, answer in OLDER.items() if what != "h: 2 dims"}
EMPTY = {
    "x: layout 0, lengths [4, 0, 4]": U,
    "x: layout 0, lengths [0, 0, 0]": U,
    "x: layout 2, lengths [0, 4, 3]": U,
    "x: layout 2, lengths [0, 0, 0]": U,
    "forward, layout 0, padded I/O 1, lengths [0, 4, 3]": U,
    "forward, layout 2, padded I/O 1, lengths [0, 4, 3]": U,
}
DIFFERENCES = {
    90000: OLDER | LAX,
    90100: BEFORE_9_13 | EMPTY | LAX,
    91002: BEFORE_9_13,
    91900: {},
    92800: {},
}
# The fake plays these versions, but follows the table where real ones merely let a call pass.
FAKE_DIFFERENCES = {
    90000: OLDER,
    90100: BEFORE_9_13 | EMPTY,
    91002: BEFORE_9_13,
    92800: {},
}


def answer_class(cudnn, answer):
    """Return the class of an answer of ask.py, or two if the status does not decide."""
    if "died" in answer:
        return {DIES}
    status = answer["status"]
    if cudnn < 91300 and status == 4000:  # of the call of CUDA too
        return {T, I}
    return {0: {T}, 2: {W}, 3: {U}, 4: {I}, 5: {T}}.get(status // 1000, {status})
