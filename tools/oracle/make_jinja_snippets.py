#!/usr/bin/env python3
"""Renders the templates of a file of snippets with jinja2, set up as transformers does.

Usage: make_jinja_snippets.py tests/data/chat_templates/jinja_more_snippets.jsonl

Each line has a `template`; `expected` or `error` are computed anew, over the variables of
jinja_snippets_context.json, and the file is rewritten. A template whose result is not the same on
every machine (an address in it, text that is not UTF-8) is refused. Needs Jinja2 3.1.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2025, 7, 4, 9, 5, 3)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("run"), [], [], body).set_lineno(line)

    def run(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(env, template, variables):
    try:
        expected = env.from_string(template).render(**json.loads(variables))
    except Exception as e:
        return {"error": {"type": type(e).__name__, "message": str(e)}}
    expected.encode("utf-8")
    if " at 0x" in expected:
        raise ValueError(f"depends on the machine: {template}")
    return {"expected": expected}


def main():
    path = pathlib.Path(sys.argv[1])
    variables = (path.parent / "jinja_snippets_context.json").read_text(encoding="utf-8")
    env = environment()
    templates = [json.loads(line)["template"] for line in path.read_text().splitlines()]
    lines = [json.dumps({"template": t, **render(env, t, variables)}) for t in templates]
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
