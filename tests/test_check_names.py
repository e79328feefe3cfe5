from __future__ import annotations

from pathlib import Path

from tests.check_names import find_problems


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def test_names_with_a_noun_pass(tmp_path: Path) -> None:
    write(tmp_path, steps__a="class Run:\n    def read(self, rows): self.path = [row for row in rows]\n")
    assert find_problems(tmp_path) == []


def test_class_names_are_unique(tmp_path: Path) -> None:
    write(tmp_path, steps__a="class Recorder: ...", workflows__b="class Recorder: ...")
    assert find_problems(tmp_path) == ["class Recorder exists more than once: steps/a.py:1, workflows/b.py:1"]


def test_banned_names_are_refused_wherever_bound(tmp_path: Path) -> None:
    write(tmp_path, steps__a="def _told(said):\n    done = self.found = [each for each in said]\n")
    names = [problem.split(": ")[1].split()[0] for problem in find_problems(tmp_path)]
    assert sorted(names) == ["_told", "done", "each", "found", "said"]


def test_test_names_have_a_limit_and_a_median(tmp_path: Path) -> None:
    write(tmp_path, tests__a="".join(f"def test_{'x' * length}(): ...\n" for length in (20, 55, 56)))
    assert find_problems(tmp_path) == [
        f"tests/a.py:3: test_{'x' * 56} has more than 60 characters",
        "test names have 60 characters in the median, more than 36",
    ]
