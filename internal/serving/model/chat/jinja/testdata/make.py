#!/usr/bin/env python3
"""Renders templates with jinja2 (Debian's python3-jinja2) as Hugging Face's transformers sets it up.

    make.py             writes constructs.json from constructs.txt (one template a line; a newline is written as a
                        return symbol, a tab as a tab symbol)
    make.py FOLDER      prints the same for each template FOLDER/*.jinja, with chats with and without tools;
                        go test ./internal/serving/model/chat/jinja -run Foreign -templates FILE compares
"""
import datetime
import functools
import glob
import json
import os
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = datetime.datetime(2026, 2, 3, 4, 5, 6).strftime


@functools.lru_cache(maxsize=1)
def compiled(source):
    return env.from_string(source)


def rendered(source, variables):
    try:
        return {"want": compiled(source).render(**variables)}
    except Exception as e:  # whatever stops a template
        return {"error": f"{type(e).__name__}: {e}"}


def constructs():
    here = os.path.dirname(os.path.abspath(__file__))
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "user", "content": "V"}]
    variables = {"s": "  ab c ", "l": [3, 1, 2], "one": ["x"], "n": None, "e": [], "msgs": chat, "u": "a,b,,c",
                 "d": {"b": 1, "a": [True, None, 1.5, "é'\"<"], "c": {}}}
    with open(os.path.join(here, "constructs.txt"), encoding="utf8") as f:
        sources = [line.rstrip("\n").replace("⏎", "\n").replace("⇥", "\t") for line in f]
    cases = [{"source": s, "variables": 0, **rendered(s, variables)} for s in sources]
    with open(os.path.join(here, "constructs.json"), "w", encoding="utf8") as f:
        json.dump({"variables": [variables], "cases": cases}, f, ensure_ascii=False, indent=1)
        f.write("\n")


def foreign(folder):
    def say(role, content, **more):
        return {"role": role, "content": content, **more}

    def calls(arguments):
        return [{"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]

    properties = {"city": {"type": "string", "description": "Its name"},
                  "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
                  "more": {"type": "object", "properties": {"f": {"type": "number", "default": 0.5},
                           "l": {"type": "array", "items": {"type": ["string", "null"]}}}},
                  "exact": {"type": "boolean", "default": True, "nullable": True}}
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "Of a \"city\" <b> & 'more' é",
              "parameters": {"type": "object", "properties": properties, "required": ["city"]}}},
             {"type": "function", "function": {"name": "now", "description": "The time.",
              "parameters": {"type": "object", "properties": {}}}}]
    answered = say("tool", "{\"sky\": \"clear\"}", name="get_weather", tool_call_id="call12345")
    given = {"city": "Köln", "days": 2, "more": {"f": 1.0, "l": [None, "a"]}, "exact": False}
    chats = [
        [say("user", "Hi there")],
        [say("user", "  <b>'Größe' & \"日本\"\n\n{{x}} {% y %} \t")],
        [say("system", "Be brief.\n"), say("user", "Hi")],
        [say("user", "Hi"), say("assistant", "Hello! "), say("user", "Who?"),
         say("assistant", "<think>\nhm\n</think>\n\nMe."), say("user", "Ok ")],
        [say("system", " You are X."), say("user", "Hi"), say("assistant", "Hello!"), say("user", "Who?")],
        [say("user", "Hi"), say("assistant", "Hel")],
        [say("user", "a"), say("user", "b")],
        [say("user", "Hi"), say("assistant", "Yes", reasoning_content="Let me think"), say("user", "Next")],
        [say("developer", "Dev."), say("user", "Hi")],
        [],
        [say("user", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])],
        [say("system", "Sys"), say("user", "Weather?"), say("assistant", "", tool_calls=calls(given)), answered,
         say("assistant", "Clear."), say("user", "Thanks")],
        [say("user", "Weather?"), say("assistant", None, tool_calls=calls("{\"city\": \"Rome\"}")), answered],
    ]
    variables = []
    for messages in chats:
        for kwargs in ({}, {"tools": tools, "enable_thinking": False}, {"enable_thinking": True}):
            for answer in (True, False):
                variables.append({"messages": messages, "tools": None, "documents": None, "add_generation_prompt": answer,
                                  "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
                                  **kwargs})
    cases = []
    for name in sorted(glob.glob(os.path.join(folder, "*.jinja"))):
        with open(name, encoding="utf8", newline="") as f:
            source = f.read()
        for i, v in enumerate(variables):
            cases.append({"file": os.path.basename(name), "source": source, "variables": i, **rendered(source, v)})
    json.dump({"variables": variables, "cases": cases}, sys.stdout, ensure_ascii=False)


if len(sys.argv) > 1:
    foreign(sys.argv[1])
else:
    constructs()
