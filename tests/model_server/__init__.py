"""A model endpoint for tests: OpenAI's and Anthropic's protocols on a real socket, answers by a script.

with model_server(play(call("execute_bash", command="ls"), call("submit"))) as server:
    ...  # base_url is server.url; server.calls and server.counts record the requests
"""

from tests.model_server.answers import Answer, Call, Fault, Script, call, function_text, rate_limited
from tests.model_server.scripts import after, by_text, every, flaky, from_file, play, refusing
from tests.model_server.serving import Counts, ModelServer, ServedRequest, model_server

__all__ = [
    "Answer", "Call", "Counts", "Fault", "ModelServer", "Script", "ServedRequest", "after", "by_text",
    "call", "every", "flaky", "from_file", "function_text", "model_server", "play", "rate_limited", "refusing",
]  # fmt: skip
