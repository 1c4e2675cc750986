"""What the GPU's benchmark compares and how, without a GPU."""

import sys

import numpy as np
from commands import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_floor
import gpu_speed


def test_the_floor_is_that_of_the_fastest_algorithm():
    us = {"ours": (5, 10), "raw cuDNN": (4, 8), "raw cuDNN, small H": (4, 5)}
    us = {name: {"host": [t[0]] * 2, "whole": [t[1]] * 2} for name, t in us.items()}
    over, *_ = gpu_speed.goals(gpu_speed.problem_of(gpu_speed.QUICK[4]), us)
    assert over[0] == "over raw cuDNN" and over[2] == "5.0 us, 100.0%" and not over[3]


def test_a_peer_that_raises_is_a_part_of_the_row():
    def right(problem, place):
        return lambda calls: {}, lambda: np.zeros(3)

    def wrong(problem, place):
        return lambda calls: {}, lambda: np.ones(3)

    def missing(problem, place):
        raise gpu_floor.Missing("not installed")

    def raises(problem, place):
        raise ValueError("no")

    problem = gpu_speed.problem_of(("lstm", 2, 1, 4, 1, "float32"))
    peers = {"ours": right, "wrong": wrong, "missing": missing, "raises": raises}
    jobs, left_out, failed = gpu_speed.jobs_of(problem, None, peers)
    assert list(jobs) == ["ours"] and left_out == {"missing": "not installed"}
    assert failed == {"wrong": "AssertionError: it differs from ours by 1",
                      "raises": "ValueError: no"}  # fmt: skip


def test_clocks_are_warm_before_a_time_is_taken(monkeypatch):
    monkeypatch.setattr(gpu_speed, "WARM", 0.01)
    made = []

    def job(calls):
        made.append(calls)
        return {"whole": 1000.0}

    assert gpu_speed.measure({"ours": job}, 1, 20) == {"ours": {"whole": [1000, 1000]}}
    # warming, how many calls make a turn, one more to warm the caches, and the turn
    assert made[0] == gpu_speed.MOST_CALLS and made[-3:] == [2, 1, 2]
