"""Score a data set that is larger than memory: an RNN on Dask, with two worker processes.

    python -m pip install dask distributed pyarrow
    python examples/dask_score.py [--gigabytes 2] [--workers 2] [--memory 500MB] [--folder FOLDER]

The script makes the data set, Parquet files of random sequences; scores it with the workers, which
get the weights once; then scores it again in this process, in batches of another size; and
compares the two results bit for bit. Times and the peak memory of each worker are printed.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import rnnlayout as rl

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from distributed import Client, LocalCluster, get_worker
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: python -m pip install dask distributed pyarrow")

STEPS, INPUTS, HIDDEN, SCORES = 50, 16, 64, 4  # a sequence has STEPS times INPUTS numbers
ROWS = 4096  # sequences per row group, 13 MB: what a worker holds at a time


def make_data(folder, nbytes):
    """Write Parquet files of nbytes in all, and return their paths."""
    rng = np.random.default_rng(0)
    sequences = nbytes // (4 * STEPS * INPUTS)
    each = ROWS * min(5, max(1, sequences // ROWS // 8))  # at least 8 files, if there are so many
    paths = []
    for k, first in enumerate(range(0, sequences, each)):
        paths.append(folder / f"part-{k:04}.parquet")
        x = rng.standard_normal((min(each, sequences - first), STEPS * INPUTS), "f4")
        column = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), STEPS * INPUTS)
        pq.write_table(pa.table({"x": column}), paths[-1], row_group_size=ROWS, compression=None)
    return paths


def make_weights():
    """Return an LSTM that ends in a projection to the scores. A real program loads a file."""
    rng = np.random.default_rng(1)
    spec = rl.Spec("lstm", INPUTS, HIDDEN, proj_size=SCORES)
    shapes = rl.describe(spec, "torch").items()
    return {name: rng.uniform(-0.2, 0.2, shape).astype("f4") for name, shape in shapes}


def score(path, rnn, out, rows=ROWS):
    """Score one file, a batch at a time, and write the scores. This is what a worker runs."""
    written = out / f"{path.stem}.npy"
    parts = []
    for batch in pq.ParquetFile(path).iter_batches(rows):
        x = batch.column("x").flatten().to_numpy()  # not copied
        _, (h_n, _) = rnn(x.reshape(-1, STEPS, INPUTS))
        parts.append(h_n[0])
    np.save(written, np.concatenate(parts))
    return written


def score_on_worker(path, rnn, out, sent):
    """Score one file; return which worker did it, whether with the RNN it was sent, its peak."""
    score(path, rnn, out)
    worker = get_worker()
    return worker.address, worker.data[sent] is rnn, peak_nbytes()


def one_thread():
    """Let calls use one thread: each worker has one CPU."""
    rl.set_num_threads(1)


def peak_nbytes():
    """Return the most memory that this process has had resident."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def on_dask(paths, rnn, out, workers, memory):
    """Score all files on worker processes; print what the workers used."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=memory,
                     dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        client.run(one_thread)
        sent = client.scatter(rnn, broadcast=True)  # once to each worker, not with each task
        done = client.gather(
            client.map(score_on_worker, paths, rnn=sent, out=out, sent=sent.key, pure=False)
        )
    for worker in sorted({worker for worker, _, _ in done}):
        mine = [(same, peak) for who, same, peak in done if who == worker]
        if not all(same for same, _ in mine):
            sys.exit(f"{worker} got the weights more than once")
        print(f"  a worker: {len(mine)} files, weights sent once, peak memory"
              f" {max(peak for _, peak in mine) / 1e6:.0f} MB")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2, help="size of the data set")
    parser.add_argument("--workers", type=int, default=2, help="number of worker processes")
    parser.add_argument("--memory", default="500MB", help="limit of a worker; Dask enforces it")
    parser.add_argument("--folder", type=Path, help="keep data and scores there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        dask, alone = folder / "dask", folder / "alone"
        for made in (folder, dask, alone):
            made.mkdir(parents=True, exist_ok=True)

        began = time.perf_counter()
        paths = make_data(folder, int(args.gigabytes * 1e9))
        nbytes = sum(path.stat().st_size for path in paths)
        print(f"{nbytes / 1e9:.2f} GB in {len(paths)} files: {time.perf_counter() - began:.0f} s")

        rnn = rl.RNN(make_weights(), batch_first=True)
        began = time.perf_counter()
        on_dask(paths, rnn, dask, args.workers, args.memory)
        seconds = time.perf_counter() - began
        print(f"{args.workers} workers, with their start: {seconds:.0f} s")

        began = time.perf_counter()
        one_thread()
        for path in paths:
            score(path, rnn, alone, rows=1000)
        print(f"one process: {time.perf_counter() - began:.0f} s")

        for path in paths:
            one, other = dask / f"{path.stem}.npy", alone / f"{path.stem}.npy"
            if one.read_bytes() != other.read_bytes():
                sys.exit(f"{path.name}: the scores differ")
        print("the scores are equal, bit for bit")


if __name__ == "__main__":
    main()
