"""Which cases of a test there are, and which of them a plain run leaves out."""

import itertools

import pytest
from hypothesis import given, settings


def long(*case):
    return pytest.param(*case, marks=pytest.mark.long)


def download(*case):
    return pytest.param(*case, marks=pytest.mark.download)


def sample(cases, every):
    """Keep the first of every so many cases in a plain run. Take a prime number for a product of
    choices, so that each choice is met."""
    return [
        case if k % every == 0 else long(*(case if isinstance(case, tuple) else (case,)))
        for k, case in enumerate(cases)
    ]


def in_turn(choice, other):
    """Return each value of a choice with one of another choice, which are taken in turn."""
    return list(zip(choice, itertools.cycle(other), strict=False))


def pairwise(*choices, fits=lambda *case: True):
    """Return few cases of a product of choices: each two values that fit together meet in one."""
    product = itertools.product(*(range(len(choice)) for choice in choices))
    cases = [(at, [values[k] for values, k in zip(choices, at, strict=True)]) for at in product]
    pairs = {at: set(itertools.combinations(enumerate(at), 2)) for at, case in cases if fits(*case)}
    case_of = {at: tuple(case) for at, case in cases}
    left, found = set().union(*pairs.values()), []
    while left:
        best = max(pairs, key=lambda at: len(pairs[at] & left))
        found.append(case_of[best])
        left -= pairs[best]
    return found


def examples(most, **strategies):
    """Decorate a test that gets random arguments, so many times."""
    return lambda test: settings(max_examples=most, deadline=None)(given(**strategies)(test))


def more_examples(most, test, **strategies):
    """The same test with more random arguments, as a long run has them."""
    return examples(most, **strategies)(test.hypothesis.inner_test)
