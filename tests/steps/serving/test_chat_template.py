from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

import tests.tinker_server  # noqa: F401 - skips where the extra tinker is not installed
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.serving.chat_template import ChatTemplate, UnrenderableError


def with_template(model: Path, folder: Path, source: str, **config: object) -> ChatTemplate:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "chat_template": source, **config})
    )
    return ChatTemplate(folder)


def test_tokens_decode_to_the_same_text(model_files: Path) -> None:
    template = ChatTemplate(model_files)
    text = "héllo\n<tool_call> 世界 🙂"
    assert template.decode(template.encode(text)) == text
    assert template.encode("<|im_end|>") == template.stop_ids == [258]
    assert [template.token_text(token_id) for token_id in template.encode("a<|im_end|>")] == ["a", "<|im_end|>"]


def test_template_globals_are_defined(model_files: Path, tmp_path: Path) -> None:
    source = (
        "{% for m in messages %}\n  {% if m.role == 'x' %}{% continue %}{% endif %}\n{% generation %}{{ m.content }}"
        "{% endgeneration %}{% endfor %}{{ tools | tojson(indent=1) }}{{ eos_token }}{{ flag }}"
        "{{ strftime_now('%Y')[:2] }}"
    )
    template = with_template(model_files, tmp_path, source)
    ids = template.render([{"role": "x", "content": "no"}, {"role": "y", "content": "yes"}], [{"a": "é"}], flag=7)
    assert template.decode(ids) == 'yes[\n {\n  "a": "é"\n }\n]720'
    assert 258 in ids


def test_template_may_be_a_file(model_files: Path, tmp_path: Path) -> None:
    with_template(model_files, tmp_path, "old")
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('only two') }}")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [256, 258]}')
    template = ChatTemplate(tmp_path)
    assert template.stop_ids == [256, 258]
    with pytest.raises(UnrenderableError, match="only two"):
        template.render([], None)


def test_template_is_sandboxed(model_files: Path, tmp_path: Path) -> None:
    template = with_template(model_files, tmp_path, "{{ messages.__class__.__mro__ }}")
    with pytest.raises(UnrenderableError):
        template.render([], None)


def test_template_is_thread_safe(model_files: Path) -> None:
    template = ChatTemplate(model_files)
    expected = template.encode("x" * 3000)
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.extend(template.encode("x" * 3000) == expected for _ in range(20)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 160


def test_missing_files_are_named(model_files: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer_config.json cannot be read"):
        ChatTemplate(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer.json cannot be read"):
        ChatTemplate(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((model_files / "tokenizer.json").read_bytes())
    with pytest.raises(ConfigError, match="has no chat template"):
        ChatTemplate(tmp_path)
