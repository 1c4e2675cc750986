"""diagnose: buffers of packers that share nothing with the package."""

import pytest
from compare.odd_packers import KINDS, NETWORKS, verdicts

# With one hidden unit a gate has few values, or one: what was done to them cannot be told.
TINY = [spec for spec in NETWORKS if spec.hidden_size == 1]
DIFFERENT = [spec for spec in NETWORKS if spec.hidden_size > 1]
SOME = [DIFFERENT[k] for k in (0, 3, 7, 8, 12)]


def problems(kind, networks):
    """Return the answers that are wrong: a crash, a sure one that is not true, one without the
    words that it should have, one that does not restore what can be restored."""
    return [one for one in verdicts([kind], networks)
            if one.crash or one.wrong or not one.named or one.restored is False]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_packer_did_is_named(kind):
    assert problems(kind, SOME) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_packer_did_is_named_for_all_networks(kind):
    assert problems(kind, DIFFERENT) == []


@pytest.mark.parametrize("kind", KINDS)
def test_of_tiny_networks_nothing_false_is_sure(kind):
    assert [one for one in verdicts([kind], TINY) if one.crash or one.wrong] == []
