"""Tags: what they are made of, and that nobody can guess one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exon.tags import Tags
from exon.wire import MAX_NUMBER

HOME = ("host", 1)


def test_a_tag_is_the_same_every_time() -> None:
    assert Tags(b"secret").tag("a", 1, HOME) == Tags(b"secret").tag("a", 1, HOME)


def test_a_tag_depends_on_the_secret_and_on_all_that_it_vouches_for() -> None:
    tags = Tags(b"secret")
    others = [
        Tags(b"another").tag("a", 1, HOME),
        tags.tag("b", 1, HOME),
        tags.tag("a", 2, HOME),
        tags.tag("a", 1, ("elsewhere", 1)),
        tags.tag("a", 1, ("host", 2)),
    ]
    assert len({tags.tag("a", 1, HOME), *others}) == 6


def test_fields_cannot_be_shifted_into_each_other() -> None:
    tags = Tags(b"secret")
    assert tags.tag("a1", 1, HOME) != tags.tag("a", 11, HOME)
    assert tags.tag("a", 11, HOME) != tags.tag("a", 1, ("1host", 1))
    assert tags.tag("a", 1, ("host1", 1)) != tags.tag("a", 1, ("host", 11))


@given(st.text(max_size=20), st.integers(0, MAX_NUMBER), st.tuples(st.text(max_size=20), st.integers(0, 65535)))
def test_a_tag_is_a_number_that_a_header_can_carry_and_never_the_one_for_no_proof(
    peer: str, epoch: int, address: tuple[str, int]
) -> None:
    assert 0 < Tags(b"secret").tag(peer, epoch, address) <= MAX_NUMBER
