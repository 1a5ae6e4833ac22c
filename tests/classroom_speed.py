"""How long a class takes to grade: `python tests/classroom_speed.py 02-split 200 [--json FILE]`.

Makes so many honest submissions of a sheet, no two alike, and grades them on two cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from radixlab.classroom.grade import grade_all
from radixlab.classroom.sheet import Sheet, load_sheet

WORKERS = 2


def hand_in(sheet: Sheet, folder: Path, count: int) -> None:
    """Write what `count` students made of a sheet: the answers in cells, and something around."""
    answers = [exercise.solution for exercise in sheet.exercises.values()]
    for number in range(count):
        cells = [f"tries = {number}", *answers, f"print('student', {number}, 'is done')"]
        text = "\n\n# %%\n".join(cells)
        (folder / f"student-{number:04}.py").write_text(text, encoding="utf-8")


def seconds_to_grade(sheet: Sheet, count: int) -> float:
    """Grade so many and see that each has all points."""
    with tempfile.TemporaryDirectory() as name:
        submissions, out = Path(name, "submissions"), Path(name, "out")
        submissions.mkdir()
        hand_in(sheet, submissions, count)
        start = time.monotonic()
        results = grade_all(sheet, submissions, out, "a seed", workers=WORKERS)
        seconds = time.monotonic() - start
    most = sum(exercise.total for exercise in sheet.exercises.values())
    wrong = [result.student for result in results if result.points != most]
    if len(results) != count or wrong:
        raise SystemExit(f"{len(results)} graded; not right: {', '.join(wrong)}")
    return seconds


def main() -> None:
    """Print what it took, and write it to a file if one is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sheet")
    parser.add_argument("count", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sheet, count = load_sheet(options.sheet), options.count
    seconds = seconds_to_grade(sheet, count)
    print(
        f"{sheet.name}: {count} in {seconds:.0f} s, {seconds / count:.2f} s each, {WORKERS} workers"
    )
    if options.json is not None:
        told = {"sheet": sheet.name, "submissions": count, "workers": WORKERS, "seconds": seconds}
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
