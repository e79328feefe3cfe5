"""OpenAI's Responses protocol, translated to and from chat completions."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from swe_argo.steps.contracts.run_spec import WireProtocol
from swe_argo.steps.models.protocols.chat import CODES, openai_error
from swe_argo.steps.models.protocols.client_tools import arguments_of, call_item, client_tool, is_hosted
from swe_argo.steps.models.protocols.translation import (
    build_completion,
    file_part,
    function_tool,
    merge_system_messages,
    named_choice,
    pack,
    reasoning_of,
    unpack,
)
from swe_argo.steps.models.protocols.wire import AgentError, Body, Wire, event, same_fields
from swe_argo.steps.models.reply import text_of
from swe_argo.steps.models.response_body import nested_field, valid_arguments

INPUT = "input"
"""The single parameter of a custom tool, which takes text, when offered as a function."""


def _chat_request(request: Body) -> Body:
    """Return the request as a chat completion request, without features of OpenAI's servers: tools, stored answers.

    A custom tool, which takes text, is offered as a function with one parameter. Raises ValueError if the request
    refers to a stored conversation, which only OpenAI's servers have.
    """
    for name in ("previous_response_id", "conversation"):
        if request.get(name):
            raise ValueError(f"{name} names what is stored, and nothing is: send the conversation whole")
    reading = _ItemReading(request.get("instructions"))
    items = request["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        reading.add(item)
    chosen = request.get("tool_choice")
    tools = [entry for tool in request.get("tools") or [] for entry in _tools(tool)]
    if isinstance(chosen, dict) and chosen.get("type") == "allowed_tools":  # few endpoints support this
        allowed = {entry.get("name") or entry["type"] for entry in chosen["tools"]}
        tools = [entry for entry in tools if entry["function"]["name"] in allowed]
        chosen = chosen.get("mode")
    if isinstance(chosen, dict):
        chosen = named_choice(chosen.get("name") or chosen.get("type"), tools)
    chat: Body = RESPONSES.parameters(request) | {
        "model": request.get("model"),
        "messages": merge_system_messages(reading.messages()),
        "response_format": _format((request.get("text") or {}).get("format")),
    }
    if tools:
        chat |= {"tools": tools, "tool_choice": chosen if isinstance(chosen, str | dict) else "auto"}
    else:
        chat["parallel_tool_calls"] = None
    return {name: value for name, value in chat.items() if value is not None}


class _ItemReading:
    """Converter of items to messages.

    The items of one answer, up to the next result or user message, become one assistant message. The results of its
    calls follow directly, as servers require, then the other messages before the next answer.
    """

    def __init__(self, instructions: str | None) -> None:
        self._messages: list[Body] = [{"role": "system", "content": instructions}] if instructions else []
        self._answer: Body | None = None
        """The assistant message whose items are being read, None between answers."""
        self._thought, self._packed = "", ""
        """Reasoning of that message, and its fields as packed by ``pack``."""
        self._results: list[Body] = []
        self._images: list[Body] = []
        """Images and files of the results, which a tool message cannot hold."""
        self._following: list[Body] = []
        """User and system messages after the results."""

    def add(self, item: Body) -> None:
        """Add an item; those of OpenAI's own tools are left out. Raises ValueError for a reference to a stored item."""
        kind = item.get("type", "message")
        if kind == "message" and item["role"] != "assistant":
            self._end_answer()
            self._following.append({"role": item["role"], "content": _content(item["content"])})
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._end_answer()
            content = _content(item["output"])
            if isinstance(content, list):
                self._images += [part for part in content if part["type"] != "text"]
            text = _text(item["output"], "\n")
            self._results.append({"role": "tool", "tool_call_id": item["call_id"], "content": text})
        elif str(kind).endswith("_output") and (tool := client_tool(kind)):
            self._end_answer()
            name = item.get("call_id") or item["id"]
            self._results.append({"role": "tool", "tool_call_id": name, "content": tool.output(item)})
        elif kind == "message":
            answer = self._begin_answer()
            answer["content"] = (answer["content"] or "") + _text(item["content"])
        elif kind == "reasoning":
            self._begin_answer()
            parts = item.get("content") or item.get("summary") or []
            self._thought += "".join(part["text"] for part in parts)
            self._packed = self._packed or item.get("encrypted_content") or ""
        elif (call := _call_of(item)) is not None:
            call["function"]["arguments"] = valid_arguments(call["function"]["arguments"])
            self._begin_answer().setdefault("tool_calls", []).append(call)
        elif kind == "item_reference":
            raise ValueError("item_reference names what is stored, and nothing is: send the conversation whole")

    def messages(self) -> list[Body]:
        """Return all messages, after the last item."""
        self._end_answer()
        self._end_turn()
        return self._messages

    def _begin_answer(self) -> Body:
        """Return the assistant message that the next item belongs to; begin one if there is none."""
        if self._answer is None:
            self._end_turn()
            self._answer = {"role": "assistant", "content": None}
        return self._answer

    def _end_answer(self) -> None:
        """Append the assistant message, if one has begun; one without calls needs a text, even an empty one."""
        if self._answer is not None:
            if not self._answer.get("tool_calls"):
                self._answer["content"] = self._answer["content"] or ""
            unpack(self._packed, self._thought, self._answer)
            self._messages.append(self._answer)
        self._answer, self._thought, self._packed = None, "", ""

    def _end_turn(self) -> None:
        """End the turn. Results cannot hold images and files, so a user message shows these after the last result."""
        image_messages = [{"role": "user", "content": self._images}] if self._images else []
        self._messages += [*self._results, *image_messages, *self._following]
        self._results, self._images, self._following = [], [], []


def _call_of(item: Body) -> Body | None:
    """Return an item's call in chat completions form; None if it calls no tool that the agent runs."""
    name, kind = item.get("name"), item.get("type")
    if kind == "function_call":
        arguments = item["arguments"]
    elif kind == "custom_tool_call":
        arguments = json.dumps({INPUT: item["input"]}, ensure_ascii=False)
    elif str(kind).endswith("_call") and (tool := client_tool(kind)) and not is_hosted(item):
        name, arguments = str(kind).removesuffix("_call"), arguments_of(item, tool)
    else:
        return None
    return {"id": item["call_id"], "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(content: object, between: str = "") -> str:
    """Return the text of a content, with ``between`` between its parts; other JSON is returned as text."""
    if isinstance(content, list):
        texts = [part.get("text") or part.get("refusal") or "" for part in content]
        return between.join(text for text in texts if text)
    return content if isinstance(content, str) else json.dumps(content)


def _content(content: object) -> Any:
    """Return the content, as parts if it has images or files. Raises ValueError for a file that OpenAI stores."""
    if not isinstance(content, list) or not any(part.get("type") in ("input_image", "input_file") for part in content):
        return _text(content, "\n\n")
    parts: list[Body] = []
    for part in content:
        if part["type"] == "input_image":
            parts.append({"type": "image_url", "image_url": {"url": part["image_url"]}})
        elif part["type"] == "input_file":
            if not part.get("file_data"):
                raise ValueError("a file by its id or address cannot be had here: send it whole, as file_data")
            parts.append(file_part(part.get("filename") or "document.pdf", part["file_data"]))
        elif part.get("text"):
            parts.append({"type": "text", "text": part["text"]})
    return parts


def _tools(tool: Body) -> list[Body]:
    """Return a tool as functions: several for a namespace, none for a tool that OpenAI's servers run."""
    if tool.get("type") == "namespace":  # namespaces of tools (Codex): their names are unique without it
        return [entry for inner in tool.get("tools") or [] for entry in _tools(inner)]
    if tool.get("type") == "function":
        names = ("name", "description", "parameters", "strict")
        return [{"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}]
    if tool_kind := client_tool(tool.get("type")):
        return [] if is_hosted(tool) else [tool_kind.function]
    if tool.get("type") == "custom":
        form = tool.get("format") or {}
        grammar = f" Its form ({form.get('syntax')}):\n{form['definition']}" if form.get("definition") else ""
        text = {"type": "string", "description": f"The input, as plain text.{grammar}"}
        entry = function_tool(tool["name"], tool.get("description", ""), {INPUT: text}, [INPUT])
        entry["function"]["parameters"]["additionalProperties"] = False
        return [entry]
    return []


def _format(wished: Body | None) -> Body | None:
    if not wished or wished.get("type") == "text":
        return None
    if wished["type"] != "json_schema":
        return {"type": wished["type"]}
    return {"type": "json_schema", "json_schema": {name: entry for name, entry in wished.items() if name != "type"}}


FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Reason of an incomplete response -> OpenAI's finish reason."""


def _completion(answer: Body) -> Body:
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
        elif (call := _call_of(item)) is not None:
            calls.append(call)
    if calls:
        message["tool_calls"] = calls
    cut = (answer.get("incomplete_details") or {}).get("reason")
    finish = FINISH.get(str(cut), cut) or ("tool_calls" if calls else "stop")
    usage = answer.get("usage")
    counts = usage and {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    }
    return build_completion(answer, message, finish, counts)


def _answer_of(chat: Body, request: Body) -> Body:
    choice = (chat.get("choices") or [{}])[0]
    message, usage = choice.get("message") or {}, chat.get("usage") or {}
    offered = _offered(request.get("tools") or [])
    output: list[Body] = []

    def returned_arguments(call: Body) -> str:
        """Return a call's arguments as the agent will send them back."""
        sent_back = _call_of(_call(call, offered))
        return str(sent_back["function"]["arguments"]) if sent_back else ""

    packed_fields, reasoning = pack(message, returned_arguments), reasoning_of(message)
    if reasoning or packed_fields:
        summary = [{"type": "summary_text", "text": reasoning}] if reasoning else []
        output.append({"type": "reasoning", "id": _id("rs"), "summary": summary, "encrypted_content": packed_fields})
    texts: list[Body] = []
    if text := text_of(message.get("content")):
        texts.append({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
    if refusal := message.get("refusal"):
        texts.append({"type": "refusal", "refusal": refusal})
    about = {"type": "message", "role": "assistant", "status": "completed"}
    output += [about | {"id": _id("msg"), "content": [part]} for part in texts]
    output += [_call(call, offered) for call in message.get("tool_calls") or []]
    cut = next((cut for cut, finish in FINISH.items() if finish == choice.get("finish_reason")), None)
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


def _call(call: Body, offered: dict[str, Body]) -> Body:
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
    prompt, output = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = nested_field(usage, "prompt_tokens_details", "cached_tokens") or 0
    reasoning = nested_field(usage, "completion_tokens_details", "reasoning_tokens") or 0
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + output,
    }


ENDS = ("response.completed", "response.incomplete", "response.failed")
"""Events that contain the complete response."""


def events(answer: Body, request: Body) -> bytes:  # noqa: ARG001 - signature shared by all protocols
    """Return a response as a stream, with one delta per text."""
    numbered = (item_event | {"sequence_number": number} for number, item_event in enumerate(_events(answer)))
    return b"".join(event(item_event, item_event["type"]) for item_event in numbered)


def _events(answer: Body) -> Iterator[Body]:
    """Yield the events of a response in the order in which OpenAI's API sends them."""
    started = answer | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    for place, item in enumerate(answer["output"]):
        at = {"output_index": place}
        yield {"type": "response.output_item.added", "item": _empty(item), **at}
        yield from (item_event | at | {"item_id": item.get("id")} for item_event in _inner(item))
        yield {"type": "response.output_item.done", "item": item, **at}
    yield {"type": f"response.{answer.get('status') or 'completed'}", "response": answer}


def _empty(item: Body) -> Body:
    texts: Body = {name: "" for name in ("arguments", "input") if name in item}
    lists: Body = {name: [] for name in ("content", "summary") if item.get(name)}
    return item | texts | lists | ({"status": "in_progress"} if "status" in item else {})


def _inner(item: Body) -> Iterator[Body]:
    """Yield the events for the texts inside an item: arguments, summaries and contents."""
    if item["type"] == "function_call":
        yield from _text_events("function_call_arguments", "arguments", item["arguments"], {"name": item["name"]})
    if item["type"] == "custom_tool_call":
        yield from _text_events("custom_tool_call_input", "input", item["input"], {})
    for index, part in enumerate(item.get("summary") or []):
        at = {"summary_index": index}
        yield {"type": "response.reasoning_summary_part.added", "part": part | {"text": ""}, **at}
        yield from _text_events("reasoning_summary_text", "text", part["text"], at)
        yield {"type": "response.reasoning_summary_part.done", "part": part, **at}
    for index, part in enumerate(item.get("content") or []):
        name = "refusal" if part["type"] == "refusal" else "text"
        logprobs = {"logprobs": part.get("logprobs") or []} if part["type"] == "output_text" else {}
        at = {"content_index": index}
        yield {"type": "response.content_part.added", "part": part | {name: ""}, **at}
        yield from _text_events(part["type"], name, part[name], at | logprobs)
        yield {"type": "response.content_part.done", "part": part, **at}


def _text_events(kind: str, name: str, text: str, about: Body) -> Iterator[Body]:
    yield {"type": f"response.{kind}.delta", "delta": text, **about}
    yield {"type": f"response.{kind}.done", name: text, **about}


class ResponseAssembly:
    """The events of one streamed answer; the last one contains the complete response."""

    def __init__(self) -> None:
        self._response: Body = {}
        self._items: list[Body] = []
        """Complete items, in case the last event omits them."""
        self.has_output = False
        self.is_complete = False

    def add(self, data: str) -> Body | None:
        """Add an event; return the error that it contains, if any. Raises ValueError if it is not a JSON object."""
        if data.strip() == "[DONE]":
            return None
        message: Any = json.loads(data)
        kind = message.get("type") or ""
        if kind == "error" or (message.get("error") and not kind):
            return {"error": message.get("error") or message}
        if kind in ENDS:
            self._response, self.is_complete = dict(message["response"]), True
            return {"error": self._response["error"]} if self._response.get("error") else None
        if kind == "response.output_item.done":
            self._items.append(message["item"])
        self.has_output = self.has_output or kind.endswith(".delta")
        return None

    def build_body(self) -> Body:
        """Return the response; items that the last event omits come from the earlier events."""
        return self._response | {"output": self._response.get("output") or self._items}


def _error_stream(trouble: AgentError, message: str) -> bytes | None:
    """Return a stream with the error; Codex recognises a context overflow only by this event."""
    if trouble is not AgentError.TOO_LONG:
        return None
    response: Body = {"id": "resp_none", "object": "response", "created_at": 0, "status": "failed", "output": []}
    response["error"] = {"code": CODES[trouble], "message": message}
    return event({"type": "response.failed", "sequence_number": 0, "response": response}, "response.failed")


RESPONSES = Wire(
    WireProtocol.RESPONSES,
    "/responses",
    "response",
    fields={
        **same_fields("temperature", "top_p", "parallel_tool_calls", "prompt_cache_key", "service_tier"),
        "max_tokens": ("max_output_tokens",),
        "reasoning_effort": ("reasoning", "effort"),
    },
    assembly=ResponseAssembly,
    chat_request=_chat_request,
    completion=_completion,
    answer_of=_answer_of,
    events=events,
    error=openai_error,
    error_stream=_error_stream,
)
