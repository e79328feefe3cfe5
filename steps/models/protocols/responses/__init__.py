"""OpenAI's Responses (platform.openai.com/docs/api-reference/responses), translated to and from chat completions."""
