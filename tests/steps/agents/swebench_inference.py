"""SWE-bench's own prompt functions and answer parser, from its package."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import pytest

_PACKAGE = "swebench.inference.make_datasets"
# Modules that it imports but does not use for prompts and answers: a tokenizer from the network, git, chardet.
_UNUSED: Mapping[str, Mapping[str, Any]] = {
    f"{_PACKAGE}.tokenize_dataset": {"TOKENIZER_FUNCS": {}},
    "git": {"Repo": None},
    "chardet": {},
}


@contextmanager
def _stub_unused() -> Iterator[None]:
    ours = []
    for name, content in _UNUSED.items():
        if name.startswith("swebench") or importlib.util.find_spec(name) is None:
            module = ModuleType(name)
            vars(module).update(content)
            sys.modules[name] = module
            ours.append(name)
    handlers = list(logging.root.handlers), logging.root.level
    try:
        yield
    finally:
        for name in ours:
            del sys.modules[name]
        logging.root.handlers[:], level = handlers
        logging.root.setLevel(level)


@cache
def _module(name: str) -> ModuleType:
    for package in ("swebench", "unidiff", "tqdm"):
        pytest.importorskip(package, reason=f"SWE-bench's own prompts need {package}")
    with _stub_unused():
        return importlib.import_module(f"{_PACKAGE}.{name}")


def prompt(style: str, row: Mapping[str, Any]) -> str:
    """Return ``PROMPT_FUNCTIONS[style](row)``; the row has problem_statement, readmes, file_contents, patch."""
    functions: dict[str, Callable[[Mapping[str, Any]], str]] = _module("create_instance").PROMPT_FUNCTIONS
    return functions[style](row)


def extract_diff(answer: str) -> str:
    """Return the patch in an answer."""
    patch: str = _module("utils").extract_diff(answer)
    return patch


def text_column(style: str, row: Mapping[str, Any]) -> str:
    """Return the column ``text`` of its published datasets (create_text_dataset.extract_fields)."""
    return prompt(style, row).strip() + "\n\n"
