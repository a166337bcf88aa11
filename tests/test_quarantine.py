import math

from compass_forged.quarantine import Quarantine


def test_nothing_is_held_back_before_an_answer_about_something_else() -> None:
    quarantine = Quarantine()
    quarantine.begin()
    assert quarantine.opens_in(0.0) == 0.0
    assert not quarantine.prove(0.0)
    quarantine.end()


def test_a_pause_doubles_to_its_end_and_begins_anew_after_a_quiet_time() -> None:
    quarantine = Quarantine()
    now, waits = 0.0, []
    for _ in range(6):
        waits.append(quarantine.pause(now))
        assert quarantine.opens_in(now) == quarantine.paused_for(now) == waits[-1]
        now += waits[-1]
        assert quarantine.paused_for(now) == 0.0
    assert waits == [60, 120, 240, 480, 900, 900]
    assert quarantine.prove(now)
    assert quarantine.pause(now + 899) == 900
    assert quarantine.pause(now + 899 + 900 + 900) == 60


def test_answers_to_what_went_out_before_a_pause_neither_lengthen_nor_end_it() -> None:
    quarantine = Quarantine()
    assert quarantine.pause(0.0) == 60
    assert quarantine.pause(20.0) == 40
    assert not quarantine.prove(30.0)
    assert quarantine.opens_in(30.0) == 30
    assert quarantine.on_trial


def test_after_a_pause_writes_go_one_at_a_time_until_one_is_answered_rightly() -> None:
    quarantine = Quarantine()
    quarantine.pause(0.0)
    assert quarantine.opens_in(60.0) == 0.0
    quarantine.begin()
    assert quarantine.opens_in(60.0) == math.inf
    quarantine.end()  # refused, or nobody knows: the next one finds out
    assert quarantine.opens_in(61.0) == 0.0
    quarantine.begin()
    assert quarantine.prove(62.0)
    assert quarantine.opens_in(62.0) == 0.0
    assert not quarantine.prove(62.0)
