"""Events in words."""

from perseus_ds.report.contents.journal import JournalLine, fact_rows, facts_in_words, journal_lines


def test_an_event_tells_its_line() -> None:
    event = {"time": "2026-01-02T03:04:05.678+00:00", "event": "running", "plan": 3, "line": "running plan 3"}
    assert list(journal_lines([event])) == [JournalLine("03:04:05", "running", "running plan 3")]


def test_an_unknown_event_tells_its_facts_with_units() -> None:
    event = {"event": "novel", "clock_mhz": 1200, "saving_pct": 12.345678, "why_not": "none"}
    assert list(journal_lines([event])) == [
        JournalLine("", "novel", "clock 1200 MHz, saving 12.346 %, why not none")
    ]


def test_times_and_energies_carry_their_unit() -> None:
    assert facts_in_words({"solve_time_s": 0.25, "energy_j": 7}) == "solve time 0.25 s, energy 7 J"


def test_facts_within_facts_have_rows_of_their_own_and_no_syntax() -> None:
    facts = {
        "worth": {"baseline": {"energy_per_token_j": 2.5}},
        "clocks_mhz": [1410, 705],
        "reserve_pct": "auto",
    }
    assert dict(fact_rows(facts | {"simulated": True, "rows": [{"a_s": 1.0}]})) == {
        "worth, baseline, energy per token": "2.5 J",
        "clocks": "1410, 705 MHz",
        "reserve": "automatic",
        "simulated": "yes",
        "rows": "(a 1 s)",
    }
