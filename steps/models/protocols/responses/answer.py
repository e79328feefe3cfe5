"""Answers of OpenAI's Responses: translation to and from chat completions."""

from __future__ import annotations

import json
import time
import uuid

from swe_argo.steps.models.images import text_of
from swe_argo.steps.models.protocols.carried import pack, reasoning_of
from swe_argo.steps.models.protocols.responses.client_tools import call_item, client_tool, is_hosted
from swe_argo.steps.models.protocols.responses.request import INPUT, call_of
from swe_argo.steps.models.protocols.wire import COST_FIELDS, Body

FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Reason of an incomplete response -> OpenAI's finish reason."""


def completion(answer: Body) -> Body:
    """Return a response as a chat completion. An error is returned alone, any other body unchanged."""
    if "output" not in answer or answer.get("error"):
        return {"error": answer["error"]} if answer.get("error") else answer
    message: Body = {"role": "assistant", "content": ""}
    calls = []
    for item in answer["output"]:
        kind = item["type"]
        if kind == "message":
            for part in item["content"]:
                name = "refusal" if part["type"] == "refusal" else "content"
                message[name] = (message.get(name) or "") + part.get("text", part.get("refusal", ""))
        elif kind == "reasoning":
            reasoning = "".join(part["text"] for part in item.get("content") or item.get("summary") or [])
            message["reasoning_content"] = message.get("reasoning_content", "") + reasoning
        elif (call := call_of(item)) is not None:
            calls.append(call)
    if calls:
        message["tool_calls"] = calls
    cut = (answer.get("incomplete_details") or {}).get("reason")
    finish = FINISH.get(str(cut), cut) or ("tool_calls" if calls else "stop")
    usage = answer.get("usage")
    return {
        "id": answer.get("id"),
        "object": "chat.completion",
        "created": answer.get("created_at") or 0,
        "model": answer.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        **({"usage": _chat_usage(usage)} if usage else {}),
    }


def _chat_usage(usage: Body) -> Body:
    """Return a response's usage with the field names of chat completions, and any cost fields."""
    costs: Body = {name: usage[name] for name in COST_FIELDS if name in usage}
    return costs | {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    }


def answer_of(chat: Body, request: Body) -> Body:
    """Return a chat completion as a response to this request."""
    choice = (chat.get("choices") or [{}])[0]
    message, usage = choice.get("message") or {}, chat.get("usage") or {}
    offered = _offered(request.get("tools") or [])
    output, packed_fields, reasoning = (
        [],
        pack(message, lambda call: _returned_arguments(call, offered)),
        reasoning_of(message),
    )
    if reasoning or packed_fields:
        summary = [{"type": "summary_text", "text": reasoning}] if reasoning else []
        output.append({"type": "reasoning", "id": _id("rs"), "summary": summary, "encrypted_content": packed_fields})
    if text := text_of(message.get("content")):
        output.append(_message({"type": "output_text", "text": text, "annotations": [], "logprobs": []}))
    if refusal := message.get("refusal"):
        output.append(_message({"type": "refusal", "refusal": refusal}))
    output += [_call(call, offered) for call in message.get("tool_calls") or []]
    # Finish reason -> reason of an incomplete response.
    incomplete_reasons = {finish: cut for cut, finish in FINISH.items()}
    cut = incomplete_reasons.get(str(choice.get("finish_reason")))
    echoed: Body = {
        name: request[name] for name in ("instructions", "metadata", "temperature", "top_p") if name in request
    }
    return {
        "id": _id("resp"),
        "object": "response",
        "created_at": chat.get("created") or int(time.time()),
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "model": request.get("model"),
        "output": output,
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        "usage": _usage(usage),
        **echoed,
    }


def _id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


def _message(part: Body) -> Body:
    return {"type": "message", "id": _id("msg"), "role": "assistant", "status": "completed", "content": [part]}


def _offered(tools: list[Body], namespace: str | None = None) -> dict[str, Body]:
    """Return name in chat completions -> type and namespace of each tool that the agent itself runs."""
    offered: dict[str, Body] = {}
    for tool in tools:
        kind = tool.get("type")
        if kind == "namespace":
            offered |= _offered(tool.get("tools") or [], tool.get("name"))
        elif (name := str(kind if client_tool(kind) else tool.get("name") or "")) and not is_hosted(tool):
            offered[name] = {"type": kind} | ({"namespace": namespace} if namespace else {})
    return offered


def _returned_arguments(call: Body, offered: dict[str, Body]) -> str:
    """Return a call's arguments as the agent will send them back."""
    sent_back = call_of(_call(call, offered))
    return str(sent_back["function"]["arguments"]) if sent_back else ""


def _call(call: Body, offered: dict[str, Body]) -> Body:
    """Return a call as an item of the type that belongs to the tool it calls."""
    name, arguments = call["function"]["name"], call["function"].get("arguments") or ""
    about = {"call_id": call["id"], "status": "completed"}
    tool = offered.get(name, {})
    kind = tool.get("type")
    if (definition := client_tool(kind)) and (item := call_item(arguments, name, definition)):
        return item | {"id": _id(definition.id_kind)} | about
    inside = {"namespace": tool["namespace"]} if "namespace" in tool else {}
    if kind == "custom":
        return {"type": "custom_tool_call", "id": _id("ctc"), "name": name, "input": _plain(arguments)} | about | inside
    return {"type": "function_call", "id": _id("fc"), "name": name, "arguments": arguments or "{}"} | about | inside


def _plain(arguments: str) -> str:
    """Return the text input of a custom tool; malformed arguments are returned unchanged."""
    try:
        text = json.loads(arguments)[INPUT]
    except (ValueError, KeyError, TypeError, RecursionError):
        return arguments
    return text if isinstance(text, str) else arguments


def _usage(usage: Body) -> Body:
    """Return a chat completion's usage by Responses' names; counts that are missing are 0."""
    prompt, output = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + output,
    }
