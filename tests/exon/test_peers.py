"""Node ids and the address book."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exon.errors import BadIdentifier
from exon.peers import AddressBook, check_id

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)  # lone surrogates too


@given(ANY_TEXT)
@example("a")
@example("a" * 255)
@example("a" * 256)
@example("\u20ac" * 85)  # 255 bytes
@example("\u20ac" * 86)
@example("\U0001f4a9" * 64)  # 256 bytes
@example("\x00")
@example("\ud800")
def test_an_id_is_1_to_255_bytes_of_utf8(text: str) -> None:
    try:
        legal = 1 <= len(text.encode()) <= 255
    except UnicodeEncodeError:
        legal = False
    if legal:
        assert check_id(text) is text
    else:
        with pytest.raises(BadIdentifier):
            check_id(text)


@pytest.mark.parametrize("thing", [b"a", 7, None])
def test_an_id_is_text(thing: object) -> None:
    with pytest.raises(BadIdentifier, match=f"not {type(thing).__name__}"):
        check_id(thing)  # type: ignore[arg-type]


def test_the_message_says_how_long_it_is() -> None:
    with pytest.raises(BadIdentifier, match="this one has 300"):
        check_id("\u20ac" * 100)


def test_the_book_remembers_the_last_address_until_it_is_taken_back() -> None:
    book = AddressBook()
    assert book.find("b") is None
    book.register("b", ("host", 1))
    book.register("c", ("host", 2))
    book.register("b", ("elsewhere", 3))
    assert book.find("b") == ("elsewhere", 3)
    assert len(book) == 2
    book.unregister("b")
    book.unregister("b")
    assert book.find("b") is None
    assert book.find("c") == ("host", 2)
    assert len(book) == 1


def test_the_book_takes_no_bad_id() -> None:
    book = AddressBook()
    with pytest.raises(BadIdentifier):
        book.register("", ("host", 1))
    assert len(book) == 0
