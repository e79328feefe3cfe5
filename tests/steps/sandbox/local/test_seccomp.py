"""The system call filter, instruction by instruction."""

from __future__ import annotations

import errno
import struct

import pytest

from swe_argo.steps.sandbox.local import seccomp

ALLOWED, DENIED = 0x7FFF0000, 0x00050000 | errno.EPERM


def evaluate(architecture: int, number: int, place: int = 0, value: int = 0) -> int:
    """Return what the filter answers to a call with a value as its argument, as the kernel would run it."""
    arguments = [value if position == place else 0 for position in range(6)]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments)
    lines = list(struct.iter_unpack("=HBBI", seccomp.filter_program()))
    at = value = 0
    while True:
        code, if_true, if_false, operand = lines[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code == 0x54:
            value &= operand
        elif code == 0x15:
            at += if_true if value == operand else if_false
        else:
            assert code == 0x06
            return int(operand)


@pytest.mark.parametrize("architecture", seccomp.NUMBERS)
def test_filter_denies_listed_calls_only(architecture: int) -> None:
    denied = {number for number in range(1024) if evaluate(architecture, number) == DENIED}
    assert denied == set(seccomp.NUMBERS[architecture])
    assert evaluate(architecture, 0) == ALLOWED
    for number, place, argument in seccomp.WITH_ARGUMENT[architecture]:
        denied = {value for value in range(64) if evaluate(architecture, number, place, value) == DENIED}
        assert denied == {argument}


def test_filter_denies_other_machines() -> None:
    assert evaluate(0xC000003E, 0x40000000 | 250) == DENIED  # keyctl of an x32 program
    assert evaluate(0xC00000F3, 0) == DENIED
