"""Search for cuDNN in this process, as the environment variable QUESTION says."""

import ctypes
import json
import os
import sys
from unittest import mock

from run.gpu.doctor import VARIABLES

import rnnlayout as rl
from rnnlayout._run import cudnn


def search():
    """Print the answers to the steps, in order: a report, None, or the text of an error."""
    question, answers = json.loads(os.environ["QUESTION"]), []
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(question["variables"])
    if question["loaded"]:
        ctypes.CDLL(question["loaded"])
    for step in question["steps"]:
        if step == "find":
            with mock.patch.multiple(sys, path=question["packages"], prefix=question["environment"],
                                     base_prefix=question["environment"]):  # fmt: skip
                answers.append(cudnn.cudnn_report())
        elif step == "forget the variable":
            os.environ.pop("RNNLAYOUT_CUDNN", None)
        else:
            try:
                answers.append(rl.set_cudnn(step["choose"]))
            except rl.SpecError as error:
                answers.append(str(error))
    print(json.dumps(answers))
