"""The coloured tables of rates: headers, what is bold, and the same as text."""

from __future__ import annotations

import re

from radixlab.viz import draw_rates

RATES = {
    "lru": {"chat": 0.402, "no-sharing": 0.0},
    "<new>": {"chat": 0.588, "no-sharing": 0.0},
    "belady": {"chat": 0.59, "no-sharing": 0.0},
}


def test_a_table_of_rates_has_headers_for_columns_and_rows() -> None:
    html = draw_rates(RATES)._repr_html_()
    assert re.findall(r'scope="col"><span>(.*?)<', html) == ["chat", "no-sharing"]
    assert re.findall(r'scope="row">(.*?)<', html) == ["lru", "&lt;new&gt;", "belady"]


def test_rates_near_the_last_row_are_bold_and_only_if_it_is_the_best() -> None:
    shown = draw_rates(RATES)._repr_html_()
    assert re.findall(r"<b>(.*?)&nbsp;%</b>", shown) == ["0", "59", "0", "59", "0"]
    assert "<b>" not in draw_rates(RATES, last_is_best=False)._repr_html_()


def test_a_table_of_rates_is_text_where_there_is_no_page() -> None:
    assert repr(draw_rates(RATES)).splitlines() == [
        "        chat  no-sharing",
        "lru     40 %         0 %",
        "<new>   59 %         0 %",
        "belady  59 %         0 %",
    ]
