"""A thousand changes of the weights while calls go on: none is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.tinker_server.proxy import ADMIN_KEY, CALLER_KEY, RunningProxy

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
HI: Any = [{"role": "user", "content": "Hi"}]
SWAPS, CALLERS = 1000, 16


def test_swaps_lose_no_call(proxy: RunningProxy) -> None:
    async def drive() -> list[tuple[str, str]]:
        results: list[tuple[str, str]] = []
        swapping = True

        async def call() -> None:
            async with openai.AsyncOpenAI(base_url=proxy.url, api_key=CALLER_KEY, max_retries=0) as client:
                while swapping:
                    answer = await client.chat.completions.create(model="tinker", messages=HI)
                    results.append((str(answer.choices[0].message.content), str(answer.system_fingerprint)))

        callers = [asyncio.create_task(call()) for _ in range(CALLERS)]
        async with openai.AsyncOpenAI(base_url=proxy.url, api_key=ADMIN_KEY, max_retries=0) as admin:
            for number in range(SWAPS):
                weights = {"version": f"{number}", "sampler_path": f"tinker://{number}"}
                await admin.post("../admin/weights", body=weights, cast_to=object)
            await admin.post("../admin/weights", body={"version": "base"}, cast_to=object)
        swapping = False
        await asyncio.gather(*callers)  # an error of any call is one of the test
        return results

    answers = asyncio.run(drive())
    assert len(answers) > SWAPS
    assert {text for text, _ in answers} == {"Hello."}
    versions = {version for _, version in answers}
    assert len(versions) > 100
    paths = {version: f"tinker://{version}" if version != "base" else "test/model" for version in versions}
    assert {call.weights for call in proxy.server.calls} == set(paths.values())
    assert len(proxy.server.calls) == len(answers)
