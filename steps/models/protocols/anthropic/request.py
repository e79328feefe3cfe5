"""Translation of Anthropic messages requests to chat completion requests."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from swe_argo.steps.models.protocols.anthropic.client_tools import client_tool
from swe_argo.steps.models.protocols.carried import unpack
from swe_argo.steps.models.protocols.files import file_part
from swe_argo.steps.models.protocols.roles import merge_system_messages
from swe_argo.steps.models.protocols.wire import Body

Block = dict[str, Any]


def chat_request(request: Body) -> Body:
    """Return the request as a chat completion request, without features of Anthropic's own servers: tools, caching."""
    system = _text(request.get("system"))
    messages = [{"role": "system", "content": system}] if system else []
    for by_model, turn in groupby(request["messages"], lambda message: message["role"] == "assistant"):
        read = [item for message in turn for item in (_assistant_messages if by_model else _user_messages)(message)]
        # In a user turn, tool results come first: they must follow their calls. The sort keeps all other order.
        messages += sorted(read, key=lambda item: item["role"] != "tool" and not by_model)
    chosen = request.get("tool_choice") or {}
    serial = {"parallel_tool_calls": False} if chosen.get("disable_parallel_tool_use") else {}
    tools = [item for tool in request.get("tools") or [] if (item := _tool(tool))]
    config, thinking = request.get("output_config") or {}, request.get("thinking") or {}
    chat: Body = {
        "model": request.get("model"),
        "messages": merge_system_messages(messages),
        "max_tokens": request.get("max_tokens"),
        "stop": request.get("stop_sequences") or None,
        "reasoning_effort": "none" if thinking.get("type") == "disabled" else config.get("effort"),
        "response_format": _format(config.get("format") or request.get("output_format")),
        **{name: request.get(name) for name in ("temperature", "top_p", "top_k")},
    }
    if tools:
        chat |= {"tools": tools, "tool_choice": _choice(chosen, {tool["function"]["name"] for tool in tools})} | serial
    return {name: value for name, value in chat.items() if value is not None}


def arguments_of(block: Block) -> str:
    """Return a tool call's arguments as JSON text."""
    return json.dumps(block["input"], ensure_ascii=False)


def _text(content: str | list[Block] | None) -> str:
    if isinstance(content, list):
        return "\n\n".join(block["text"] for block in content if block.get("text"))
    return content or ""


def _blocks(content: str | list[Block]) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _assistant_messages(message: Body) -> list[Body]:
    """Return an assistant message with its calls and the fields packed into its thinking blocks."""
    text, reasoning, packed_fields, calls = "", "", None, []
    for block in _blocks(message["content"]):
        if block["type"] == "text":
            text += block["text"]
        elif block["type"] == "thinking":
            reasoning, packed_fields = reasoning + block["thinking"], packed_fields or block.get("signature")
        elif block["type"] == "redacted_thinking":
            packed_fields = packed_fields or block["data"]
        elif block["type"] == "tool_use":
            function = {"name": block["name"], "arguments": arguments_of(block)}
            calls.append({"id": block["id"], "type": "function", "function": function})
    reply: Body = {"role": "assistant", "content": text if text or not calls else None}
    if calls:
        reply["tool_calls"] = calls
    unpack(packed_fields, reasoning, reply)
    return [reply]


def _user_messages(message: Body) -> list[Body]:
    """Return a user turn: tool results first, as they must follow their calls, then all other content."""
    results, parts = [], list[Body]()
    for block in _blocks(message["content"]):
        if block["type"] == "tool_result":
            inner = [part for part in map(_part, _blocks(block.get("content") or "")) if part]
            text = "\n".join(part["text"] for part in inner if part["type"] == "text")
            results.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": text})
            parts += [part for part in inner if part["type"] != "text"]
        elif part := _part(block):
            parts.append(part)
    if not parts:
        return results
    plain = all(part["type"] == "text" for part in parts)
    content = "\n\n".join(part["text"] for part in parts) if plain else parts
    return [*results, {"role": message["role"], "content": content}]


def _part(block: Block) -> Block | None:
    """Return a content block as a part of a chat message; None if the block has another type."""
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    source = block.get("source") or {}
    if block["type"] == "image":
        url = source.get("url") or f"data:{source['media_type']};base64,{source['data']}"
        return {"type": "image_url", "image_url": {"url": url}}
    if block["type"] == "document":
        return _document(source, block.get("title") or "document.pdf")
    if block["type"] == "search_result":
        lines = filter(None, (block.get("title"), source, _text(block.get("content"))))
        return {"type": "text", "text": "\n".join(map(str, lines))}
    if block["type"] == "tool_reference":
        return {"type": "text", "text": f"Tool found: {block['tool_name']}"}
    return None


def _document(source: Block, title: str) -> Block:
    """Return a document as a part. Raises ValueError if only Anthropic's own servers can fetch it."""
    if source.get("type") == "base64":
        return file_part(title, f"data:{source['media_type']};base64,{source['data']}")
    if source.get("type") in ("text", "content"):
        return {"type": "text", "text": source["data"] if source["type"] == "text" else _text(source["content"])}
    raise ValueError(f"a document of source {source.get('type')!r} cannot be had here: send it whole, as base64")


def _tool(tool: Body) -> Body | None:
    """Return a tool as a function; None if Anthropic's servers run it."""
    if "input_schema" in tool:
        described = tool.get("description", "")
        function = {"name": tool["name"], "description": described, "parameters": tool["input_schema"]}
    elif (client_function := client_tool(tool)) is not None:
        function = client_function
    else:
        return None
    return {"type": "function", "function": function}


def _choice(chosen: Body, offered: set[str]) -> str | Body:
    """Return the tool choice; a tool that is not offered, because Anthropic's servers run it, becomes "auto"."""
    words = {"auto": "auto", "any": "required", "none": "none"}
    if chosen.get("type") == "tool":
        name = chosen["name"]
        return {"type": "function", "function": {"name": name}} if name in offered else "auto"
    return words[chosen.get("type", "auto")]


def _format(choice: Body | None) -> Body | None:
    """Return the response format for answers by a JSON schema; None if another format or none is requested."""
    if not choice or choice.get("type") != "json_schema":
        return None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": choice["schema"], "strict": True}}
