"""Random questions for ask.py: right ones, and some with one or two mistakes."""


def question(rng):
    T, N = rng.choice([1, 2, 4, 7]), rng.choice([1, 2, 3, 8])
    layout = rng.choice([0, 2])
    asked = {
        "call": rng.choice(["sizes", "forward", "forward", "forward"]),
        "rnn": rnn(rng),
        "x": {"layout": layout, "T": T, "N": N, "lengths": lengths(rng, T, N),
              "fill": rng.random() < 0.8},
        "null": [name for name in ("hx", "hy", "cx", "cy") if rng.random() < 0.2],
    }  # fmt: skip
    asked["null"] += [name for name in ("h_desc", "c_desc") if rng.random() < 0.1]
    wrong = {
        "clip": [1, -1, 1],
        "workspace_bytes": rng.choice([-1, 7]),
        "weight_bytes": rng.choice([-1, 7]),
        "h": {"dims": [rng.choice([1, 2]), N, rng.choice([6, 5])]},
        "y": rng.choice([{"width": 3}, {"dtype": 2}, {"layout": 2 - layout}]),
        "capability": rng.choice([75, 80, 70]),
    }
    return asked | {key: value for key, value in wrong.items() if rng.random() < 0.1}


def rnn(rng):
    H = rng.choice([1, 2, 3, 6, 6, 8, 128, 200])
    dtype, precision = rng.choice([(0, 0), (0, 0), (1, 1), (2, 0), (2, 2), (9, 0)])
    cell = rng.randrange(4)
    return {
        "cell": cell, "bias": rng.choice([2, 2, 0, 1, 3]), "direction": rng.randrange(2),
        "L": rng.choice([1, 1, 2, 3]), "H": H, "I": rng.choice([H, 5, 1]),
        "P": rng.randint(1, H) if cell == 2 and rng.random() < 0.4 else H,
        "flags": rng.randrange(2), "math": rng.randrange(4), "algo": rng.choice([0, 0, 0, 3]),
        "dtype": dtype, "precision": precision, "input_mode": int(rng.random() < 0.2),
    }  # fmt: skip


def lengths(rng, T, N):
    return [T] * N if rng.random() < 0.4 else [rng.randint(0, T) for _ in range(N)]
