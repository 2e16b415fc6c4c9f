"""Events in words."""

from perseus_ds.report.figures import JournalLine, fact_rows, facts_in_words, journal_lines


def test_an_event_tells_its_line() -> None:
    event = {"time": "2026-01-02T03:04:05.678+00:00", "event": "running", "plan": 3, "line": "plan 3"}
    assert list(journal_lines([event])) == [JournalLine("03:04:05", "running", "plan 3")]


def test_an_unknown_event_tells_its_facts_with_units() -> None:
    event = {"event": "novel", "clock_mhz": 1200, "saving_pct": 12.345678, "why_not": "none"}
    [line] = journal_lines([event])
    assert (line.time, line.event) == ("", "novel")
    assert {"1200", "MHz", "12.346", "%"} <= set(line.facts.replace(",", "").split())


def test_times_and_energies_carry_their_unit() -> None:
    shown = facts_in_words({"time_s": 0.25, "energy_j": 7})
    assert shown.split() == ["time", "0.25", "s,", "energy", "7", "J"]


def test_facts_within_facts_have_rows_of_their_own_and_no_syntax() -> None:
    facts = {
        "worth": {"baseline": {"energy_j": 2.5}},
        "clocks_mhz": [1410, 705],
        "reserve_pct": "automatic",
    }
    rows = fact_rows(facts | {"simulated": True, "rows": [{"a_s": 1.0}]})
    assert {tuple(name.split(", ")): text.split() for name, text in rows} == {
        ("worth", "baseline", "energy"): ["2.5", "J"],
        ("clocks",): ["1410,", "705", "MHz"],
        ("reserve",): ["automatic"],
        ("simulated",): ["yes"],
        ("rows",): ["(a", "1", "s)"],
    }
