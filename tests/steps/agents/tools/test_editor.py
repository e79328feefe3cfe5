"""The editor's commands, on real files of a machine."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.agents.tools.editor import CLIPPED, Dialect, Editor, RefusedError
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.protocol import Sandbox

FILE = "/testbed/x.py"


@pytest.fixture
def editor(tidy: Sandbox) -> Editor:
    return Editor(tidy, 20.0)


def act(editor: Editor, command: str, path: str = FILE, **arguments: Any) -> str:
    return editor.act({"command": command, "path": path, **arguments})


def put(editor: Editor, data: bytes, path: str = FILE) -> None:
    editor.files.sandbox.write(path, data)


def there(editor: Editor, path: str = FILE) -> bytes:
    return editor.files.sandbox.read(path)


# -- view


def test_a_file_is_shown_with_line_numbers(editor: Editor) -> None:
    put(editor, b"a\n\tb\n")
    assert act(editor, "view").splitlines()[1:] == ["     1\ta", "     2\t\tb"]


def test_a_range_is_shown_and_may_be_open(editor: Editor) -> None:
    put(editor, b"".join(b"%d\n" % n for n in range(1, 21)))
    assert act(editor, "view", view_range=[3, 4]).splitlines()[1:] == ["     3\t3", "     4\t4"]
    assert act(editor, "view", view_range="[19, -1]").splitlines()[1:] == ["    19\t19", "    20\t20"]
    beyond = act(editor, "view", view_range=[20, 99])
    assert "only 20 lines" in beyond
    assert beyond.endswith("    20\t20")


@pytest.mark.parametrize("view_range", [[0, 1], [21, -1], [5, 4], [1], [1, 2, 3], ["a", "b"], "junk", 5, [True, 2]])
def test_a_range_that_is_none_is_refused(editor: Editor, view_range: Any) -> None:
    put(editor, b"".join(b"%d\n" % n for n in range(1, 21)))
    with pytest.raises(RefusedError, match="view_range"):
        act(editor, "view", view_range=view_range)


def test_a_folder_is_shown_two_levels_deep_without_hidden_things(editor: Editor) -> None:
    for path in ("/testbed/b/d/deep.txt", "/testbed/.hidden/x", "/testbed/b/.secret"):
        put(editor, b"", path)
    shown = act(editor, "view", "/testbed")
    assert "/testbed/b/\n/testbed/b/c.py\n/testbed/b/d/\n" in shown
    assert "deep.txt" not in shown
    assert ".secret" not in shown
    assert "Hidden items left out: 2" in shown, ".git and .hidden"
    with pytest.raises(RefusedError, match="view_range"):
        act(editor, "view", "/testbed", view_range=[1, 2])


def test_a_long_file_is_clipped_never_within_a_character(editor: Editor) -> None:
    put(editor, "é€😀".encode() * 100_000)
    shown = act(editor, "view")
    assert shown.endswith(CLIPPED)
    assert "\ufffd" not in shown
    assert len(shown) <= 10_000 + len(CLIPPED) + 200
    assert len(editor.act({"command": "view", "path": FILE}, limit=500)) <= 500 + len(CLIPPED) + 200


def test_a_long_python_file_is_shown_without_bodies(tidy: Sandbox) -> None:
    editor = Editor(tidy, 20.0, Dialect(outline_lines=110))
    body = "".join(f"    x = {n}\n" for n in range(30))
    put(editor, "".join(f"def f{n}():\n{body}" for n in range(10)).encode())
    condensed = act(editor, "view")
    assert "condensed" in condensed
    assert "    32\tdef f1():\n    33\t... lines 33-62 are left out ..." in condensed
    assert "x = 3" not in condensed
    assert "x = 3" not in act(editor, "view", concise=False), "as in R2E-Gym"
    assert "x = 3" in act(editor, "view", view_range=[1, 40])
    put(editor, b"def broken(:\n" * 200)
    assert "condensed" not in act(editor, "view"), "what cannot be parsed is shown as it is"


def test_what_is_not_there_or_is_no_file_is_refused(editor: Editor) -> None:
    for path, said in (("/testbed/none", "does not exist"), ("/dev/zero", "regular"), ("", "missing")):
        with pytest.raises(RefusedError, match=said):
            act(editor, "view", path)
    editor.files.sandbox.exec("dd if=/dev/null of=/testbed/huge bs=1M seek=2048", timeout_s=60)
    with pytest.raises(RefusedError, match="larger"):
        act(editor, "view", "/testbed/huge")


def test_a_relative_path_is_one_of_the_repository_or_refused(tidy: Sandbox) -> None:
    assert "a = 2" in act(Editor(tidy, 20.0), "view", "a.py")
    with pytest.raises(RefusedError, match=r"/testbed/a\.py"):
        act(Editor(tidy, 20.0, Dialect(absolute_only=True)), "view", "a.py")


# -- create


def test_a_new_file_is_made_with_its_folders_and_never_over_another(editor: Editor) -> None:
    act(editor, "create", "/testbed/new/é x.txt", file_text="one\n")
    assert there(editor, "/testbed/new/é x.txt") == b"one\n"
    with pytest.raises(RefusedError, match="exists"):
        act(editor, "create", "/testbed/new/é x.txt", file_text="two")
    with pytest.raises(RefusedError, match="exists"):
        act(editor, "create", "/testbed/new", file_text="two")
    with pytest.raises(RefusedError, match="file_text"):
        act(editor, "create", "/testbed/other")


def test_where_nobody_could_write_is_the_agents_own_doing(editor: Editor, kind: str) -> None:
    nowhere = [] if kind == "host" else ["/proc/none"]  # which is one of the sandbox's own there
    for path in ("/testbed/a.py/below", f"/testbed/{'long' * 100}", *nowhere):
        with pytest.raises(RefusedError, match="cannot be written"):
            act(editor, "create", path, file_text="x")


def test_a_machine_that_is_lost_is_not(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise InfraError("sandbox_lost", "gone")  # type: ignore[arg-type]

    monkeypatch.setattr(editor.files.sandbox, "write", lost)
    with pytest.raises(InfraError):
        act(editor, "create", "/testbed/fine", file_text="x")


# -- str_replace


def test_a_text_is_replaced_and_shown_with_four_lines_around(editor: Editor) -> None:
    put(editor, b"".join(b"line %d\n" % n for n in range(1, 21)))
    said = act(editor, "str_replace", old_str="line 10\n", new_str="ten\nten and a half\n")
    assert there(editor).splitlines()[8:12] == [b"line 9", b"ten", b"ten and a half", b"line 11"]
    assert "     6\tline 6\n" in said
    assert "    10\tten\n    11\tten and a half\n" in said
    assert "line 5\n" not in said
    act(editor, "str_replace", old_str="ten\n")
    assert b"ten\n" not in there(editor).replace(b"ten and", b"")


def test_a_text_that_is_not_unique_is_refused_with_its_lines(editor: Editor) -> None:
    put(editor, b"a\nb\na\n")
    with pytest.raises(RefusedError, match=r"lines \[1, 3\]"):
        act(editor, "str_replace", old_str="a", new_str="c")
    put(editor, b"aaa\n")
    with pytest.raises(RefusedError, match="Multiple"):
        act(editor, "str_replace", old_str="aa", new_str="c")


@pytest.mark.parametrize(("old", "new", "said"), [("zz", "y", "verbatim"), ("", "y", "empty"), ("a", "a", "the same")])
def test_a_replacement_that_cannot_be_is_refused(editor: Editor, old: str, new: str, said: str) -> None:
    put(editor, b"a\n")
    with pytest.raises(RefusedError, match=said):
        act(editor, "str_replace", old_str=old, new_str=new)
    assert there(editor) == b"a\n"


def test_white_space_around_is_forgiven_in_one_dialect_only(tidy: Sandbox) -> None:
    forgiving = Editor(tidy, 20.0, Dialect(strips=True))
    put(forgiving, b"x = 1\n")
    with pytest.raises(RefusedError):
        act(Editor(tidy, 20.0), "str_replace", old_str="\n  x = 1\n\n", new_str="x = 2")
    act(forgiving, "str_replace", old_str="\n  x = 1\n\n", new_str="\n  x = 2\n\n")
    assert there(forgiving) == b"x = 2\n"


def test_bytes_that_are_no_text_and_line_ends_survive(editor: Editor) -> None:
    put(editor, b"\xff\xfe\x00\r\nold\r\nnext\r\nlone\n")
    act(editor, "str_replace", old_str="old\nnext", new_str="new\nmore")
    act(editor, "str_replace", old_str="more", new_str="more\nand")
    act(editor, "insert", insert_line=1, new_str="in")
    assert there(editor) == b"\xff\xfe\x00\r\nin\r\nnew\r\nmore\r\nand\r\nlone\n"


def test_a_new_file_in_the_place_of_a_link_is_not_its_target(editor: Editor) -> None:
    put(editor, b"a\n")
    editor.files.sandbox.exec("ln -s x.py /testbed/link", timeout_s=60)
    act(editor, "view", "/testbed/link")
    editor.files.sandbox.exec("rm /testbed/link", timeout_s=60)
    act(editor, "create", "/testbed/link", file_text="new\n")
    assert (there(editor), there(editor, "/testbed/link")) == (b"a\n", b"new\n")


def test_mode_and_links_survive(editor: Editor) -> None:
    put(editor, b"#!/bin/sh\n")
    editor.files.sandbox.exec(f"chmod 750 {FILE}; ln -s x.py /testbed/link", timeout_s=60)
    act(editor, "str_replace", "/testbed/link", old_str="sh", new_str="bash")
    said = editor.files.sandbox.exec(f"stat -c %a {FILE}; test -L /testbed/link && echo link; cat {FILE}", timeout_s=60)
    assert said.stdout == b"750\nlink\n#!/bin/bash\n"


# -- insert


@pytest.mark.parametrize(
    ("before", "line", "new", "after"),
    [
        (b"a\nb\n", 0, "x", b"x\na\nb\n"),
        (b"a\nb\n", 1, "x\ny", b"a\nx\ny\nb\n"),
        (b"a\nb\n", 2, "x", b"a\nb\nx\n"),
        (b"a\nb", 2, "x", b"a\nb\nx"),
        (b"a\r\nb\r\n", 1, "x\ny", b"a\r\nx\r\ny\r\nb\r\n"),
        (b"", 0, "x", b"x\n"),
    ],
)
def test_lines_are_added_after_a_line(editor: Editor, before: bytes, line: int, new: str, after: bytes) -> None:
    put(editor, before)
    act(editor, "insert", insert_line=line, new_str=new)
    assert there(editor) == after


@pytest.mark.parametrize("arguments", [{"insert_line": 3}, {"insert_line": -1}, {"insert_line": None}, {}])
def test_a_line_that_is_not_there_is_refused(editor: Editor, arguments: dict[str, Any]) -> None:
    put(editor, b"a\nb\n")
    with pytest.raises(RefusedError, match="insert_line"):
        act(editor, "insert", new_str="x", **arguments)
    with pytest.raises(RefusedError, match="new_str"):
        act(editor, "insert", insert_line=1)


# -- undo_edit


def test_edits_are_undone_one_by_one_and_a_new_file_goes_again(editor: Editor) -> None:
    act(editor, "create", file_text="1\n")
    act(editor, "str_replace", old_str="1", new_str="2")
    act(editor, "insert", insert_line=1, new_str="3")
    assert there(editor) == b"2\n3\n"
    act(editor, "undo_edit")
    assert there(editor) == b"2\n"
    act(editor, "undo_edit")
    assert there(editor) == b"1\n"
    act(editor, "undo_edit")
    with pytest.raises(FileNotFoundError):
        there(editor)
    with pytest.raises(RefusedError, match="No edit history"):
        act(editor, "undo_edit")


def test_an_edit_that_cannot_be_undone_is_told_and_can_be_undone_later(editor: Editor) -> None:
    act(editor, "create", file_text="1\n")
    shell = editor.files.sandbox
    shell.exec(f"rm {FILE} && mkdir {FILE}", timeout_s=60)
    with pytest.raises(RefusedError, match="cannot be removed"):
        act(editor, "undo_edit")
    shell.exec(f"rmdir {FILE} && touch {FILE}", timeout_s=60)
    act(editor, "undo_edit")
    with pytest.raises(FileNotFoundError):
        there(editor)


@pytest.mark.parametrize("command", ["str_replace", "insert", "undo_edit"])
def test_folders_are_only_viewed(editor: Editor, command: str) -> None:
    with pytest.raises(RefusedError):
        act(editor, command, "/testbed/b", old_str="x", new_str="y", insert_line=0)


def test_a_command_that_does_not_exist_is_named(editor: Editor) -> None:
    with pytest.raises(RefusedError, match="delete"):
        act(editor, "delete")
