"""Search for cuDNN in this process, as the environment variable QUESTION says."""

import ctypes
import json
import os

from run.gpu.doctor import VARIABLES

import rnnlayout as rl
from rnnlayout import _native


def search():
    """Print the answers to the steps, in order: a report, None, or the text of an error."""
    question, answers = json.loads(os.environ["QUESTION"]), []
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(question["variables"])
    if question["loaded"]:
        ctypes.CDLL(question["loaded"])
    places = [list(map(os.fsencode, question[key])) for key in ("packages", "environments")]
    for step in question["steps"]:
        if step == "find":
            answers.append(_native.find_cudnn(*places))
        elif step == "forget the variable":
            os.environ.pop("RNNLAYOUT_CUDNN", None)
        else:
            try:
                answers.append(rl.set_cudnn(step["choose"]))
            except rl.SpecError as error:
                answers.append(str(error))
    print(json.dumps(answers))
