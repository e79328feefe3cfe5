"""OpenAI's Responses (platform.openai.com/docs/api-reference/responses): in the words of chat completions, and back."""
