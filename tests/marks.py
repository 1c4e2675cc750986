"""Which cases of a test there are, and which of them a plain run leaves out."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings


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


def each_pair(cases, values=tuple):
    """Return a few of the cases, such that any two values that occur together in one of all cases
    do so in one of these. values: a function that returns the values of a case."""
    pairs = [set(itertools.combinations(enumerate(values(case)), 2)) for case in cases]
    missing, kept = set().union(*pairs), []
    while missing:
        best = max(range(len(cases)), key=lambda k: len(pairs[k] & missing))
        missing -= pairs[best]
        kept.append(cases[best])
    return kept


def pairwise(*choices, fits=lambda *case: True):
    """Return few cases of a product of choices: each two values that fit together meet in one."""
    product = itertools.product(*map(list, map(enumerate, choices)))
    cases = [case for case in product if fits(*(value for _, value in case))]
    found = each_pair(cases, values=lambda case: [k for k, _ in case])
    return [tuple(value for _, value in case) for case in found]


def examples(most, **strategies):
    """Decorate a test that gets random arguments, so many times, however long they take."""
    patient = settings(
        max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    return lambda test: patient(given(**strategies)(test))


def more_examples(most, test, **strategies):
    """The same test with more random arguments, as a long run has them."""
    return examples(most, **strategies)(test.hypothesis.inner_test)
