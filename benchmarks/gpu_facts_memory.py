"""What cuDNN and the driver do with memory: pointers, workspaces and descriptors."""

import ctypes
import time
from ctypes import c_size_t, c_uint, c_ulonglong, c_void_p

from fakes import ask
from gpu_ask import fact, new

import rnnlayout as rl

# ------------------------------------------------------------------------------------- pointers


@fact(same=True)
def no_first_state(gpu):
    problem = new()
    zero = {"hx": problem.hx * 0, "cx": problem.cx * 0}
    return {"same": gpu.run(problem, {"null": ["hx", "cx"]}) == gpu.run(problem, arrays=zero)}


@fact(same=True)
def no_last_state(gpu):
    problem = new()
    return {"same": gpu.run(problem, {"null": ["hy", "cy"]})["y"] == gpu.run(problem)["y"]}


def elsewhere(gpu, name, shift):
    """Make the same call with one array a few bytes after an aligned address."""
    problem = new(spec=rl.Spec("lstm", 5, 6, dtype="float16" if shift == 2 else "float32"))
    forward = gpu.asked(problem)
    data = forward.bytes(name)
    forward.at[name] = gpu.alloc(len(data) + 256) + shift
    forward.fill(name, data)
    return {"same": gpu.results(forward.run()) == gpu.run(problem)}


def ask_elsewhere(name, shift):
    def question(gpu):
        return elsewhere(gpu, name, shift)

    question.__name__ = f"{name}_behind_by_{shift}_bytes"
    fact(same=True)(question)


for array in ("x", "weights"):
    ask_elsewhere(array, 4)
    ask_elsewhere(array, 2)


@fact()
def states_in_place(gpu):
    """hy is hx and cy is cx. Not documented; the fakes end the process."""
    same = {}
    for name, spec, steps in [("one layer", rl.Spec("lstm", 5, 6), 1),
                              ("three layers", rl.Spec("lstm", 64, 96, 3), 20)]:  # fmt: skip
        problem = new(spec=spec, T=steps)
        forward = gpu.asked(problem)
        forward.at |= {"hy": forward.at["hx"], "cy": forward.at["cx"]}
        same[name] = gpu.results(forward.run()) == gpu.run(problem)
    return {"same": same}


@fact(untouched=True)
def memory_around_the_results(gpu):
    """Nothing is written outside y, hy, cy and the workspace."""
    problem, guard = new(spec=rl.Spec("lstm", 5, 7, 2, True), T=5, N=3), bytes([0xA5]) * 512
    forward, blocks = gpu.asked(problem), {}
    for name in ("y", "hy", "cy", "workspace"):
        nbytes = forward.sizes_of[name]
        blocks[name] = gpu.alloc(nbytes + 1024)
        gpu.write(blocks[name], guard)
        gpu.write(blocks[name] + 512 + nbytes, guard)
        forward.at[name] = blocks[name] + 512
    forward.run()
    kept = {name: gpu.read(at, 512) == guard == gpu.read(at + 512 + forward.sizes_of[name], 512)
            for name, at in blocks.items()}  # fmt: skip
    return {"untouched": all(kept.values()), "each": kept}


# ------------------------------------------------------------------------- descriptors and sizes


@fact()
def no_dropout_descriptor(gpu):
    """Not documented; the fakes end the process."""
    problem = new()
    return {"same": gpu.run(problem, {"dropout": "null"}) == gpu.run(problem)}


@fact()
def texts_of_errors(gpu):
    """The status and the error text of cuDNN 9 for calls that it refuses."""
    found = {}
    for name, more in [("small workspace", {"workspace_bytes": -1}),
                       ("no weights", {"null": ["weights"]}),
                       ("shorter weights", {"weight_bytes": -1})]:  # fmt: skip
        status = gpu.asked(new(), more).forward()
        text = ctypes.create_string_buffer(512)
        if gpu.library.has("cudnnGetLastErrorString"):
            gpu.library._library.cudnnGetLastErrorString(text, c_size_t(512))
        found[name] = [status, text.value.decode()]
    return found


def workspace(gpu, more):
    asked = ask.Asked(gpu.library, {"call": "sizes", **more})
    asked.create()
    for name in ask.STEPS:
        getattr(asked, name)()  # 9 writes the sizes, then fails: the handle has no device
    return asked.workspace.value


@fact(never_falls=True)
def workspaces(gpu):
    """Bytes with a real handle and with a block of zeros, for several T and lengths."""
    rnn = {"I": 64, "H": 96, "L": 2, "P": 96}
    sizes = {}
    for T, given in [(1, None), (8, None), (8, [8, 5, 2]), (8, [1, 1, 1]), (100, None)]:
        more = {"rnn": rnn | {"flags": 1}, "x": {"T": T, "N": 3, "lengths": given}}
        forward = gpu.forward(more)
        sizes[f"T={T}, lengths={given}"] = [forward.workspace.value, workspace(gpu, more)]
    real = [size[0] for size in sizes.values()]
    rising = real[0] <= real[1] <= real[4] and real[2] <= real[1] and real[3] <= real[1]
    return {"never_falls": rising, "nbytes, real and zeros": sizes}


# ------------------------------------------------------------------------------------- pointers


@fact(
    device=[0, 2, 0, 0], behind=[0, 2, 0, 0], freed=[0, 0], host=[0, 0], pinned=[0, 1], null=[0, 0]
)
def pointers(gpu):
    """cuPointerGetAttributes for all kinds of memory: status and type, for device memory also its
    device and whether it is managed; and the time of a query. rnnlayout asks once per array."""
    told = {2: c_uint(7), 8: c_uint(7), 9: c_uint(7)}
    kinds = (c_uint * 3)(*told)
    values = (c_void_p * 3)(*map(ctypes.addressof, told.values()))

    def ask(at, known):
        status = gpu.driver.cuPointerGetAttributes(c_uint(3), kinds, values, c_ulonglong(at))
        return [status, *(found.value for found in told.values())][:known]

    at, freed, host = gpu.alloc(1 << 20), gpu.alloc(1 << 20), ctypes.create_string_buffer(64)
    gpu.free(freed)
    began = time.perf_counter()
    for _ in range(1000):
        ask(at, 4)
    us = round(1e3 * (time.perf_counter() - began), 3)
    return {"device": ask(at, 4), "behind": ask(at + 4096, 4), "freed": ask(freed, 2),
            "host": ask(ctypes.addressof(host), 2), "pinned": ask(gpu.pinned(64).value, 2),
            "null": ask(0, 2), "us, with Python's": us}  # fmt: skip
