"""The editor's commands, on files of a sandbox."""

from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.agents.tools.editor import CLIPPED, Dialect, Editor
from swe_argo.steps.agents.tools.files import RefusedError
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.protocol import Sandbox

FILE = "/testbed/x.py"


@pytest.fixture
def editor(tidy: Sandbox) -> Editor:
    return Editor(tidy, 20.0)


def act(editor: Editor, command: str, path: str = FILE, **arguments: Any) -> str:
    return editor.execute({"command": command, "path": path, **arguments})


def write_file(editor: Editor, data: bytes, path: str = FILE) -> None:
    editor.files.sandbox.write(path, data)


def read_file(editor: Editor, path: str = FILE) -> bytes:
    return editor.files.sandbox.read(path)


# -- view


def test_view_range_may_be_open(editor: Editor) -> None:
    write_file(editor, b"a\n\tb\n")
    assert act(editor, "view").splitlines()[1:] == ["     1\ta", "     2\t\tb"]
    write_file(editor, LINES)
    assert act(editor, "view", view_range=[3, 4]).splitlines()[1:] == ["     3\t3", "     4\t4"]
    assert act(editor, "view", view_range="[19, -1]").splitlines()[1:] == ["    19\t19", "    20\t20"]
    beyond = act(editor, "view", view_range=[20, 99])
    assert "only 20 lines" in beyond
    assert beyond.endswith("    20\t20")


def test_view_lists_two_folder_levels(editor: Editor) -> None:
    for path in ("/testbed/b/d/deep.txt", "/testbed/.hidden/x", "/testbed/b/.secret"):
        write_file(editor, b"", path)
    output = act(editor, "view", "/testbed")
    assert "/testbed/b/\n/testbed/b/c.py\n/testbed/b/d/\n" in output
    assert "deep.txt" not in output
    assert ".secret" not in output
    assert "Hidden items left out: 2" in output, ".git and .hidden"
    with pytest.raises(RefusedError, match="view_range"):
        act(editor, "view", "/testbed", view_range=[1, 2])


def test_view_clips_at_characters(editor: Editor) -> None:
    write_file(editor, "é€😀".encode() * 100_000)
    output = act(editor, "view")
    assert output.endswith(CLIPPED)
    assert "\ufffd" not in output
    assert len(output) <= 10_000 + len(CLIPPED) + 200
    assert len(editor.execute({"command": "view", "path": FILE}, limit=500)) <= 500 + len(CLIPPED) + 200


def test_view_outlines_long_python_file(tidy: Sandbox) -> None:
    editor = Editor(tidy, 20.0, Dialect(outline_lines=110))
    body = "".join(f"    x = {n}\n" for n in range(30))
    write_file(editor, "".join(f"def f{n}():\n{body}" for n in range(10)).encode())
    condensed = act(editor, "view")
    assert "condensed" in condensed
    assert "    32\tdef f1():\n    33\t... lines 33-62 are left out ..." in condensed
    assert "x = 3" not in condensed
    assert "x = 3" not in act(editor, "view", concise=False), "as in R2E-Gym"
    assert "x = 3" in act(editor, "view", view_range=[1, 40])
    write_file(editor, b"def broken(:\n" * 200)
    assert "condensed" not in act(editor, "view"), "what cannot be parsed is shown as it is"


def test_relative_path_is_in_repository(tidy: Sandbox) -> None:
    assert "a = 2" in act(Editor(tidy, 20.0), "view", "a.py")
    with pytest.raises(RefusedError, match=r"/testbed/a\.py"):
        act(Editor(tidy, 20.0, Dialect(absolute_only=True)), "view", "a.py")


# -- create


# -- str_replace


def test_str_replace_shows_context(editor: Editor) -> None:
    write_file(editor, b"".join(b"line %d\n" % n for n in range(1, 21)))
    output = act(editor, "str_replace", old_str="line 10\n", new_str="ten\nten and a half\n")
    assert read_file(editor).splitlines()[8:12] == [b"line 9", b"ten", b"ten and a half", b"line 11"]
    assert "     6\tline 6\n" in output
    assert "    10\tten\n    11\tten and a half\n" in output
    assert "line 5\n" not in output
    act(editor, "str_replace", old_str="ten\n")
    assert b"ten\n" not in read_file(editor).replace(b"ten and", b"")


def test_dialect_may_strip_white_space(tidy: Sandbox) -> None:
    forgiving = Editor(tidy, 20.0, Dialect(retries_stripped=True))
    write_file(forgiving, b"x = 1\n")
    with pytest.raises(RefusedError):
        act(Editor(tidy, 20.0), "str_replace", old_str="\n  x = 1\n\n", new_str="x = 2")
    act(forgiving, "str_replace", old_str="\n  x = 1\n\n", new_str="\n  x = 2\n\n")
    assert read_file(forgiving) == b"x = 2\n"


# -- insert


# -- undo_edit


def test_undo_reverts_edits_in_order(editor: Editor) -> None:
    act(editor, "create", file_text="1\n")
    act(editor, "str_replace", old_str="1", new_str="2")
    act(editor, "insert", insert_line=1, new_str="3")
    assert read_file(editor) == b"2\n3\n"
    act(editor, "undo_edit")
    assert read_file(editor) == b"2\n"
    act(editor, "undo_edit")
    assert read_file(editor) == b"1\n"
    act(editor, "undo_edit")
    with pytest.raises(FileNotFoundError):
        read_file(editor)
    with pytest.raises(RefusedError, match="No edit history"):
        act(editor, "undo_edit")


def test_failed_undo_can_be_repeated(editor: Editor) -> None:
    act(editor, "create", file_text="1\n")
    shell = editor.files.sandbox
    shell.exec(f"rm {FILE} && mkdir {FILE}", timeout_s=60)
    with pytest.raises(RefusedError, match="cannot be removed"):
        act(editor, "undo_edit")
    shell.exec(f"rmdir {FILE} && touch {FILE}", timeout_s=60)
    act(editor, "undo_edit")
    with pytest.raises(FileNotFoundError):
        read_file(editor)


# -- refusals


LINES = b"".join(b"%d\n" % n for n in range(1, 21))
REFUSALS: list[tuple[bytes, str, dict[str, Any], str]] = [
    *((LINES, "view", {"view_range": value}, "view_range") for value in ([0, 1], [21, -1], [5, 4], [1], [1, 2, 3])),
    *((LINES, "view", {"view_range": value}, "view_range") for value in (["a", "b"], "junk", 5, [True, 2])),
    (b"", "view", {"path": "/testbed/none"}, "does not exist"),
    (b"", "view", {"path": "/dev/zero"}, "regular"),
    (b"", "view", {"path": ""}, "missing"),
    (b"a\n", "create", {"file_text": "two"}, "exists"),
    (b"", "create", {"path": "/testbed/b", "file_text": "two"}, "exists"),
    (b"", "create", {"path": "/testbed/other"}, "file_text"),
    (b"", "create", {"path": "/testbed/a.py/below", "file_text": "x"}, "cannot be written"),
    (b"", "create", {"path": f"/testbed/{'long' * 100}", "file_text": "x"}, "cannot be written"),
    (b"a\nb\na\n", "str_replace", {"old_str": "a", "new_str": "c"}, r"lines \[1, 3\]"),
    (b"aaa\n", "str_replace", {"old_str": "aa", "new_str": "c"}, "Multiple"),
    (b"a\n", "str_replace", {"old_str": "zz", "new_str": "y"}, "verbatim"),
    (b"a\n", "str_replace", {"old_str": "", "new_str": "y"}, "empty"),
    (b"a\n", "str_replace", {"old_str": "a", "new_str": "a"}, "the same"),
    *((b"a\nb\n", "insert", {"insert_line": line, "new_str": "x"}, "insert_line") for line in (3, -1, None)),
    (b"a\nb\n", "insert", {"insert_line": 1}, "new_str"),
    *((b"", name, {"path": "/testbed/b", "old_str": "x"}, "") for name in ("str_replace", "insert", "undo_edit")),
    (b"", "delete", {}, "delete"),
]


def test_refused_command_changes_nothing(editor: Editor) -> None:
    for content, command, arguments, message in REFUSALS:
        write_file(editor, content)
        with pytest.raises(RefusedError, match=message or None):
            act(editor, command, **arguments)
        assert read_file(editor) == content
    editor.files.sandbox.exec("dd if=/dev/null of=/testbed/huge bs=1M seek=2048", timeout_s=60)
    with pytest.raises(RefusedError, match="larger"):
        act(editor, "view", "/testbed/huge")


def test_lost_sandbox_is_raised(editor: Editor, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "host":  # /proc/none is one of the sandbox's own there
        with pytest.raises(RefusedError, match="cannot be written"):
            act(editor, "create", "/proc/none", file_text="x")

    def lost(*_: object) -> None:
        raise InfraError("sandbox_lost", "gone")  # type: ignore[arg-type]

    monkeypatch.setattr(editor.files.sandbox, "write", lost)
    with pytest.raises(InfraError):
        act(editor, "create", "/testbed/fine", file_text="x")


# -- bytes, modes and links


def test_insert_adds_lines_after_line(editor: Editor) -> None:
    for before, line, new, after in (
        (b"a\nb\n", 0, "x", b"x\na\nb\n"),
        (b"a\nb\n", 1, "x\ny", b"a\nx\ny\nb\n"),
        (b"a\nb\n", 2, "x", b"a\nb\nx\n"),
        (b"a\nb", 2, "x", b"a\nb\nx"),
        (b"a\r\nb\r\n", 1, "x\ny", b"a\r\nx\r\ny\r\nb\r\n"),
        (b"", 0, "x", b"x\n"),
    ):
        write_file(editor, before)
        act(editor, "insert", insert_line=line, new_str=new)
        assert read_file(editor) == after


def test_edits_keep_bytes_and_line_ends(editor: Editor) -> None:
    write_file(editor, b"\xff\xfe\x00\r\nold\r\nnext\r\nlone\n")
    act(editor, "str_replace", old_str="old\nnext", new_str="new\nmore")
    act(editor, "str_replace", old_str="more", new_str="more\nand")
    act(editor, "insert", insert_line=1, new_str="in")
    assert read_file(editor) == b"\xff\xfe\x00\r\nin\r\nnew\r\nmore\r\nand\r\nlone\n"


def test_edit_keeps_mode_and_links(editor: Editor) -> None:
    write_file(editor, b"#!/bin/sh\n")
    shell = editor.files.sandbox
    shell.exec(f"chmod 750 {FILE}; ln -s x.py /testbed/link", timeout_s=60)
    act(editor, "str_replace", "/testbed/link", old_str="sh", new_str="bash")
    result = shell.exec(f"stat -c %a {FILE}; test -L /testbed/link && echo link; cat {FILE}", timeout_s=60)
    assert result.stdout == b"750\nlink\n#!/bin/bash\n"
    shell.exec("rm /testbed/link", timeout_s=60)
    act(editor, "create", "/testbed/link", file_text="new\n")
    act(editor, "create", "/testbed/new/é x.txt", file_text="one\n")
    assert (read_file(editor), read_file(editor, "/testbed/link")) == (b"#!/bin/bash\n", b"new\n")
    assert read_file(editor, "/testbed/new/é x.txt") == b"one\n"
