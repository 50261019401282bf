#!/usr/bin/env python3
"""A chat with OpenAI's client (pip install openai): one answer, then a stream.

examples/chat.py [URL]      URL: http://127.0.0.1:1919/v1; the key is in MINISGL_API_KEY, if any
"""

import os
import sys

from openai import OpenAI


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:1919/v1"
    client = OpenAI(base_url=url, api_key=os.environ.get("MINISGL_API_KEY", "none"))
    model = client.models.list().data[0].id
    messages = [{"role": "user", "content": "Name three colours."}]

    answer = client.chat.completions.create(model=model, messages=messages, max_tokens=40)
    print(answer.choices[0].message.content)
    print(f"({answer.usage.prompt_tokens} + {answer.usage.completion_tokens} tokens)")

    stream = client.chat.completions.create(
        model=model, messages=messages, max_tokens=40, stream=True
    )
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
