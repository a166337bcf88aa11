from tests.support.core import PILOT, session_of, table_of


def test_a_bound_session_is_found_by_container_and_by_id() -> None:
    one = session_of("c1", "s-1")
    table = table_of(one)
    assert table.session_of("c1") == "s-1"
    assert table.resolve("s-1") is one
    assert list(table) == [one]
    assert len(table) == 1


def test_what_is_not_bound_is_nobody() -> None:
    table = table_of(session_of("c1", "s-1"))
    assert table.session_of("c2") is None
    assert table.resolve("s-2") is None
    assert table.unbind("c2") is None


def test_binding_again_replaces_and_tells_what_was_replaced() -> None:
    first = session_of("c1", "s-1")
    table = table_of(first)
    assert table.bind(session_of("c1", "s-2")) is first
    assert table.session_of("c1") == "s-2"
    assert table.resolve("s-1") is None


def test_the_same_session_again_replaces_nobody() -> None:
    table = table_of(session_of("c1", "s-1"))
    again = session_of("c1", "s-1")
    assert table.bind(again) is None
    assert table.resolve("s-1") is again
    assert len(table) == 1


def test_a_session_has_one_container() -> None:
    table = table_of(session_of("c1", "s-1"))
    table.bind(session_of("c2", "s-1"))
    assert table.session_of("c1") is None
    assert table.session_of("c2") == "s-1"
    assert len(table) == 1


def test_unbinding_forgets_both_ways() -> None:
    one = session_of("c1", "s-1")
    table = table_of(one, session_of("c2", "s-2", PILOT))
    assert table.unbind("c1") is one
    assert table.resolve("s-1") is None
    assert table.session_of("c1") is None
    assert table.session_of("c2") == "s-2"


def test_an_empty_session_id_is_no_session() -> None:
    assert table_of(session_of("c1", "")).session_of("c1") is None


def test_the_table_can_change_while_it_is_walked() -> None:
    table = table_of(session_of("c1", "s-1"), session_of("c2", "s-2"))
    for session in table:
        table.unbind(session.container)
    assert len(table) == 0
