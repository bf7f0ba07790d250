package openai_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

const (
	texts = "/v1/completions"
	chats = "/v1/chat/completions"

	// The beginnings of a body of each.
	demo = `{"model": "demo", `
	text = demo + `"prompt": "12345678", "max_tokens": 1, `
	talk = demo + `"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, `
)

// many are n prompts.
func many(n int) string { return `["x"` + strings.Repeat(`, "x"`, n-1) + `]` }

// biases are n entries of a logit_bias.
func biases(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"%d": 1`, i))
	}
	return strings.Join(all, ", ")
}

// Ensure that a request gets status 400 and an error in OpenAI's form if it cannot be served. The error names the
// field and says what is expected.
func TestARequestThatCannotBeServedIsRefused(t *testing.T) {
	s := start(t, nil)
	const beams, unsupported = `"use_beam_search": true, `, "not supported by this server"
	tests := []struct{ path, body, param, says string }{
		{texts, "", "", "The body is empty"},
		{texts, "{", "", "not valid JSON"},
		{texts, "{} {}", "", "There is more after the JSON object"},
		{texts, "[1]", "", "The body is a JSON array; an object is expected."},
		{texts, "{\"model\": \"demo\", \"prompt\": \"Gr\xf6\xdfe\"}", "", "not UTF-8"},
		{texts, `{"MODEL": "demo", "prompt": "x"}`, "MODEL", `"MODEL" is not a field of this request; "model" is.`},

		// types
		{texts, text + `"max_tokens": 1.5}`, "max_tokens", "max_tokens is a JSON number 1.5; a whole number is expected."},
		{texts, text + `"max_tokens": 1e16}`, "max_tokens", "a whole number"},
		{texts, text + `"max_tokens": "5"}`, "max_tokens", "max_tokens is a JSON string; a whole number is expected."},
		{texts, text + `"seed": 9223372036854775808}`, "seed", "a whole number of at most 63 bits"},
		{texts, text + `"stop_token_ids": [1, "2"]}`, "stop_token_ids", "stop_token_ids contains a JSON string"},
		{texts, text + `"temperature": "hot"}`, "temperature", "a number is expected"},
		{texts, text + `"stream": 1}`, "stream", "true or false is expected"},
		{texts, text + `"stream": true, "stream_options": {"include_usage": 5}}`, "stream_options.include_usage",
			"true or false"},
		{texts, text + `"stop": 5}`, "stop", "a string or a list"},
		{texts, demo + `"prompt": {"a": 1}}`, "prompt", "a list of lists of tokens"},
		{chats, `{"model": "demo", "messages": "hi"}`, "messages", "messages is a JSON string; a list is expected."},
		{chats, `{"model": "demo", "messages": ["hi"]}`, "messages",
			"Message 0 is a JSON string; an object is expected."},

		// ranges
		{texts, demo + `"prompt": null}`, "prompt", "prompt is missing"},
		{texts, demo + `"prompt": [[]]}`, "prompt", "The prompt is empty."},
		{texts, demo + `"prompt": [2147483647]}`, "prompt", "not in the vocabulary"},
		{texts, demo + `"prompt": ` + many(129) + "}", "prompt", "at most 128"},
		{texts, text + `"max_tokens": 0}`, "max_tokens", "at least 1"},
		{texts, text + `"max_tokens": -9223372036854775808}`, "max_tokens", ""},
		{texts, text + `"max_tokens": -2}`, "max_tokens", "at least 1"},
		{texts, text + `"echo": true, "max_tokens": 0, "min_tokens": 1}`, "min_tokens", ""},
		{texts, text + `"min_tokens": 9223372036854775807}`, "min_tokens", ""},
		{chats, talk + `"max_tokens": 0}`, "max_tokens", ""},
		{chats, talk + `"max_completion_tokens": -2}`, "max_completion_tokens", "max_completion_tokens is -2"},
		{chats, talk + `"max_completion_tokens": 0}`, "max_completion_tokens", "max_completion_tokens is 0"},
		{texts, text + `"n": 0}`, "n", "at least 1"},
		{texts, text + `"n": 4611686018427387904, "max_tokens": 2}`, "n", ""}, // the product overflows
		{texts, text + `"n": -9223372036854775808}`, "n", ""},
		{chats, talk + `"n": 4611686018427387904}`, "n", ""},
		{texts, text + `"n": 3, "best_of": 2}`, "best_of", "at least n"},
		{texts, text + `"stream": true, "best_of": 2}`, "best_of", "equal to it when stream is true"},
		{texts, text + `"best_of": 1000}`, "best_of", "best_of is 1000; it must be from 1 to 128."},
		{texts, text + `"logprobs": 21}`, "logprobs", "logprobs is 21; it must be from 0 to 20."},
		{chats, talk + `"logprobs": true, "top_logprobs": 21}`, "top_logprobs",
			"top_logprobs is 21; it must be from 0 to 20."},
		{chats, talk + `"top_logprobs": 2}`, "top_logprobs", "only allowed when logprobs is true"},
		{texts, text + `"truncate_prompt_tokens": 0}`, "truncate_prompt_tokens",
			"truncate_prompt_tokens is 0; it must be from 1 to 1023, or -1."},
		{texts, text + `"truncate_prompt_tokens": -2}`, "truncate_prompt_tokens", "from 1 to 1023"},
		{chats, talk + `"truncate_prompt_tokens": 1024}`, "truncate_prompt_tokens", "from 1 to 1023"},
		{"/tokenize", `{"prompt": "x", "truncate_prompt_tokens": 0}`, "truncate_prompt_tokens", "from 1 to 1023"},
		{texts, demo + `"truncate_prompt_tokens": 5, "prompt": "` + strings.Repeat("x", 1<<17) + `"}`, "prompt",
			"more than 131072 tokens"},
		{texts, text + `"prompt_logprobs": 21}`, "prompt_logprobs", "prompt_logprobs is 21; it must be from 0 to 20."},
		{texts, text + `"prompt_logprobs": -1}`, "prompt_logprobs", "from 0 to 20"},
		{texts, text + `"prompt_logprobs": 0, "stream": true}`, "prompt_logprobs", "not available when stream is true"},
		{texts, text + `"prompt_logprobs": 20, "n": 128, "prompt": ["` + strings.Repeat("x", 1000) + `"]}`, "prompt_logprobs",
			"prompt_logprobs is 20 for 1001 tokens of prompts and 128 answers"},
		{texts, text + `"echo": true, "logprobs": 20, "n": 128, "prompt": ["` + strings.Repeat("x", 1000) + `"]}`, "logprobs",
			"send the prompts one by one"},
		{texts, text + `"temperature": 9}`, "temperature", "from 0 to 2"},
		{texts, text + `"temperature": -0.1}`, "temperature", "from 0 to 2"},
		{texts, text + `"min_p": 1.5}`, "min_p", "from 0 to 1"},
		{texts, text + `"presence_penalty": 3}`, "presence_penalty", "from -2 to 2"},
		{texts, text + `"frequency_penalty": -3}`, "frequency_penalty", "from -2 to 2"},
		{texts, text + `"repetition_penalty": 0}`, "repetition_penalty", "above 0"},
		{texts, text + `"logit_bias": {"256": 1}}`, "logit_bias", "names token 256"},
		{texts, text + `"logit_bias": {"3": 101}}`, "logit_bias", "from -100 to 100"},
		{texts, text + `"top_k": -2}`, "top_k", "it must be from 0 to 2147483647."},
		{texts, text + `"top_p": 0}`, "top_p", "it must be above 0 and at most 1."},
		{texts, text + `"stop": ` + many(65) + "}", "stop", "at most 64"},
		{texts, text + `"stop_token_ids": [-1]}`, "stop_token_ids", "Token -1 is not in the vocabulary"},
		{texts, text + `"stop_token_ids": [1` + strings.Repeat(", 1", 128) + `]}`, "stop_token_ids", "at most 128"},
		{texts, text + `"logit_bias": {"a": 5}}`, "logit_bias", `logit_bias has the key "a"`},
		{texts, text + `"logit_bias": {"7": 5, "07": -5}}`, "logit_bias", `logit_bias has the key "07"`},
		{texts, text + `"logit_bias": {"+7": 5}}`, "logit_bias", `logit_bias has the key "+7"`},
		{texts, text + `"logit_bias": {` + biases(1025) + "}}", "logit_bias", "logit_bias has 1025 tokens; at most 1024"},
		{texts, text + `"cache_salt": ""}`, "cache_salt", "cache_salt is empty"},
		{texts, text + `"stream_options": {"include_usage": true}}`, "stream_options", "only allowed when stream is true"},
		{texts, text + `"stream": true, "stream_options": {"continuous_usage_stats": true}}`,
			"stream_options.continuous_usage_stats", "include_usage is"},

		// messages
		{chats, `{"model": "demo", "messages": null}`, "messages", "messages is missing."},
		{chats, `{"model": "demo", "messages": []}`, "messages", "messages is empty."},
		{chats, `{"model": "demo", "messages": [{"content": "x"}]}`, "messages", "Message 0 has no role."},
		{chats, `{"model": "demo", "messages": [{"role": "User", "content": "x"}]}`, "messages",
			`Message 0 has the role "User"; system, developer, user, assistant and tool are known.`},
		{chats, `{"model": "demo", "messages": [{"role": "user"}]}`, "messages", "Message 0 has no content."},
		{chats, `{"model": "demo", "messages": [{"role": "user", "contents": "x"}]}`, "messages",
			`Message 0 has the field "contents", which is not known; check its name, or leave it out.`},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": "x"}, {"role": "user", "Content": "x"}]}`, "messages",
			`Message 1 has the field "Content", which is not known; "content" is.`},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "content": "x", "prefix": true}]}`, "messages",
			`Message 0 has the field "prefix", which is not supported by this server: use continue_final_message.`},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "content": "x", "partial": true}]}`, "messages",
			"use continue_final_message"},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "thinking": "x"}]}`, "messages", "use reasoning"},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "refusal": "x"}]}`, "messages", "use content"},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "audio": {"id": "x"}}]}`, "messages",
			`Message 0 has the field "audio", which is not supported by this server.`},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": "x", "images": ["x"]}]}`, "messages", "images"},
		{"/tokenize", `{"messages": [{"role": "user", "content": "x", "prefix": true}]}`, "messages", "prefix"},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": "x"}, {"role": "system", "content": null}]}`,
			"messages", "Message 1 has no content."},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, "messages",
			"Part 0 of message 0 is an image, and this model reads text; leave it out, or start the server with --omit-images"},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}`, "messages",
			`Part 0 of message 0 has the type "input_audio"; text is possible.`},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": 5}]}]}`, "messages",
			"In part 1 of message 0, text is a JSON number; a string is expected."},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": [{"type": "text"}]}]}`, "messages", "Part 0 of message 0 has no text."},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "weight": 2}]}]}`, "messages",
			`Part 0 of message 0 has "weight", which is not supported; it may have type, text, `},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": [{"text": "x"}]}]}`, "messages", "Part 0 of message 0 has no type; text is possible."},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": ["x"]}]}`, "messages", "Part 0 of message 0 is a JSON string; an object is expected."},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": 5}]}`, "messages", "The content of message 0 is neither a string nor a list of parts."},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": "x"}, {"role": 5}]}`, "messages", "In message 1, role is a JSON number; a string is expected."},
		{chats, `{"model": "demo", "messages": [{"role": "user", "content": "x"}, 5]}`, "messages", "Message 1 is a JSON number; an object is expected."},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]}`,
			"messages", "Call 0 of message 0 has no function with a name."},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}]}`,
			"messages", "Call 0 of message 0 has arguments that are neither an object nor an object in a string."},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}]}`,
			"messages", "neither an object nor an object in a string."},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]}`,
			"messages", "neither an object nor an object in a string."},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "x"}}]}]}`,
			"messages", "neither an object nor an object in a string."},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
			{"role": "tool", "content": "x"}]}`, "messages", `A result has no tool_call_id, but the calls before it are ["a"].`},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [null]}]}`, "messages", "Call 0"},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "function_call": {"name": "f"}}]}`, "messages",
			"Message 0 has a function_call; use tool_calls."},

		{chats, `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "f"}}]}]}`, "messages",
			"In call 0 of message 0, id is a JSON number; a string is expected."},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]}]}`, "messages",
			`Call 0 of message 0 has the type "custom"; function is possible.`},
		{chats, `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": "f"}]}`, "messages", "In message 0, tool_calls is a JSON string; a list is expected."},
		{chats, `{"model": "demo", "messages": [{"role": "tool", "content": "x", "tool_call_id": 5}]}`, "messages", "In message 0, tool_call_id is a JSON number; a string is expected."},
		{chats, `{"model": "demo", "messages": [{"role": "tool", "content": "x", "tool_call_id": "a"}]}`, "messages",
			`A result is of the call "a", but there is no call before it.`},
		{"/tokenize", `{"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}, {"id": "b", "function":
			{"name": "f"}}]}, {"role": "tool", "content": "x", "tool_call_id": "c"}]}`, "messages",
			`A result is of the call "c", but the calls before it are ["a" "b"].`},
		{chats, talk + `"parallel_tool_calls": "no"}`, "parallel_tool_calls", "true or false is expected"},
		{chats, talk + `"include_reasoning": "no"}`, "include_reasoning", "true or false is expected"},
		{chats, talk + `"reasoning_effort": 1}`, "reasoning_effort", "a string is expected"},
		{chats, talk + `"chat_template_kwargs": {"enable_thinking": "false"}}`, "chat_template_kwargs",
			"In chat_template_kwargs, enable_thinking is a JSON string; true or false is expected."},
		{chats, talk + `"chat_template_kwargs": {"thinking": 1}}`, "chat_template_kwargs", "thinking is a JSON number; true or false is expected."},
		{chats, talk + `"continue_final_message": true, "add_generation_prompt": true}`, "continue_final_message",
			"are both true; give one of them"},
		{"/tokenize", talk + `"continue_final_message": true, "add_generation_prompt": true}`, "continue_final_message",
			"are both true"},
		{chats, `{"model": "demo", "messages": [{"role": "assistant"}], "continue_final_message": true}`, "messages",
			"Message 0 has no content that continue_final_message could continue."},
		{texts, text + `"continue_final_message": true}`, "continue_final_message", "use /v1/chat/completions"},

		// beams
		{texts, text + beams + `"stream": true}`, "stream", ""},
		{texts, text + beams + `"n": 11}`, "n", ""},
		{texts, text + beams + `"logprobs": 1}`, "logprobs", ""},
		{texts, text + beams + `"stop": "x"}`, "stop", ""},
		{texts, text + beams + `"echo": true, "max_tokens": 0}`, "max_tokens", ""},
		{texts, text + beams + `"temperature": 9}`, "temperature", ""},
		{texts, text + beams + `"min_tokens": 1}`, "min_tokens", ""},
		{texts, text + beams + `"presence_penalty": 1}`, "presence_penalty", ""},
		{texts, text + beams + `"logit_bias": {"65": 5}}`, "logit_bias", ""},
		{texts, text + beams + `"length_penalty": 1e308}`, "length_penalty", ""},
		{texts, text + beams + `"temperature": 0.7}`, "temperature", "use_beam_search; leave it out, or give 0."},
		{texts, text + beams + `"prompt_logprobs": 1}`, "prompt_logprobs", "use_beam_search"},
		{texts, text + beams + `"top_p": 0.9}`, "top_p", "use_beam_search"},
		{texts, text + beams + `"top_k": 5}`, "top_k", "use_beam_search"},
		{texts, text + beams + `"min_p": 0.1}`, "min_p", "use_beam_search"},
		{texts, text + beams + `"frequency_penalty": 1}`, "frequency_penalty", "use_beam_search"},
		{texts, text + beams + `"repetition_penalty": 1.1}`, "repetition_penalty", "use_beam_search"},
		{chats, talk + beams + `"top_p": 0.9}`, "top_p", "use_beam_search"},
		{texts, text + `"length_penalty": 2}`, "length_penalty", "only used with use_beam_search"},

		// fields of other servers, and of the other interface
		{texts, text + `"suffix": "y"}`, "suffix", `suffix is not supported by the model "demo"`},
		{texts, text + `"suffix": 1}`, "suffix", "a string is expected"},
		{chats, talk + `"suffix": "y"}`, "suffix", "use /v1/completions"},
		{texts, text + `"priority": -1}`, "priority", unsupported},
		{texts, text + `"add_special_tokens": 1}`, "add_special_tokens", "true or false is expected"},
		{texts, text + `"max_completion_tokens": 5}`, "max_completion_tokens", "use max_tokens"},
		{texts, text + `"top_logprobs": 5}`, "top_logprobs", "use logprobs"},
		{texts, text + `"chat_template_kwargs": {"a": 1}}`, "chat_template_kwargs", "use /v1/chat/completions"},
		{texts, text + `"reasoning_effort": "low"}`, "reasoning_effort", "use enable_thinking"},
		{texts, text + `"mirostat": 2}`, "mirostat", "use top_p or min_p"},
		{texts, text + `"mirostat_tau": 4}`, "mirostat_tau", "use top_p or min_p"},
		{texts, text + `"mirostat": null, "mirostat_tau": 4}`, "mirostat_tau", "use top_p or min_p"},
		{texts, text + `"repeat_last_n": 64}`, "repeat_last_n", "use repetition_penalty"},
		{texts, text + `"num_predict": 5}`, "num_predict", "use max_tokens"},
		{texts, text + `"options": {"temperature": 0}}`, "options", "use its settings as fields of the request"},
		{texts, text + `"top_n_sigma": 1}`, "top_n_sigma", "use top_p or min_p"},
		{chats, talk + `"echo": true}`, "echo", unsupported},
		{chats, talk + `"best_of": 2}`, "best_of", "use n"},
		{chats, talk + `"tools": [{"type": "function"}]}`, "tools", "Tool 0 has no function with a name."},
		{texts, text + `"tools": [{"type": "function"}]}`, "tools", "use /v1/chat/completions"},
		{chats, talk + `"function_call": {"name": "f"}}`, "function_call", unsupported},
		{chats, talk + `"system": "auto"}`, "system", "use a message"},
		{chats, talk + `"reasoning_effort": "much"}`, "reasoning_effort", `reasoning_effort is "much"; none, minimal, low, `},
		{chats, talk + `"enable_thinking": "false"}`, "enable_thinking", "true or false is expected"},
		{texts, text + `"enable_thinking": false}`, "enable_thinking", "use enable_thinking"},
		{texts, text + `"reasoning": {"effort": "low"}}`, "reasoning", "use enable_thinking"},
		{texts, text + `"thinking": {"type": "disabled"}}`, "thinking", "use enable_thinking"},
		{chats, talk + `"thinking": {"type": "off"}}`, "thinking", "enabled, disabled and adaptive are known"},
		{chats, talk + `"reasoning": {"effort": "much"}}`, "reasoning.effort", "reasoning.effort is"},
		{chats, talk + `"reasoning": {"mode": "x"}}`, "reasoning", "mode"},
		{chats, talk + `"reasoning_format": "none"}`, "reasoning_format", "reasoning is in reasoning_content"},
		{chats, talk + `"separate_reasoning": false}`, "separate_reasoning", "reasoning is in reasoning_content"},
		{chats, talk + `"lora": [{"id": 0, "scale": 0.5}]}`, "lora", "give NAME as model"},
		{texts, text + `"lora_path": "a"}`, "lora_path", "give NAME as model"},
		{texts, text + `"context": [1, 2]}`, "context", "use a prompt of tokens"},
		{chats, talk + `"num_ctx": 8192}`, "num_ctx", "start it with --max-model-len"},
		{chats, talk + `"guided_decoding_backend": "outlines"}`, "guided_decoding_backend", "leave it out"},
		{texts, text + `"guided_whitespace_pattern": "x?"}`, "guided_whitespace_pattern", "disable_any_whitespace"},
		{texts, text + `"tfs_z": 0.9}`, "tfs_z", "use top_p or min_p"},

		// fields that nobody knows
		{texts, text + `"temprature": 0}`, "temprature", `"temprature" is not a field of this request; check its name`},
		{texts, text + `"Max_Tokens": 5}`, "Max_Tokens", `"max_tokens" is.`},
		{chats, talk + `"STREAM": true}`, "STREAM", `"stream" is.`},
		{chats, talk + `"prompt": "x"}`, "prompt", "is not a field of this request"},
		{texts, text + `"messages": [{"role": "user", "content": "x"}]}`, "messages", "is not a field of this request"},
		{texts, text + `"transforms": ["middle-out"]}`, "transforms", "is not a field of this request"},
		{"/tokenize", `{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}`, "tools",
			"Tool 0 has no function with a name."},
		{"/tokenize", `{"prompt": "x", "tools": [{"type": "function"}]}`, "tools", "give messages"},
		{"/tokenize", `{"messages": [], "num_ctx": 5}`, "num_ctx", "--max-model-len"},
		{"/tokenize", `{"messages": [], "chat_template": "x"}`, "chat_template", "--chat-template"},
		{"/tokenize", `{"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "much"}`, "reasoning_effort",
			"xhigh and max are known"},
		{"/tokenize", `{"prompt": "x", "parse_special": false}`, "parse_special", "is not a field of this request"},
		{"/detokenize", `{"tokens": [65], "skip_specials": false}`, "skip_specials", "is not a field of this request"},
		{chats, talk + `"chat_template": "x"}`, "chat_template", "--chat-template"},
		{chats, talk + `"chat_template_kwargs": [1]}`, "chat_template_kwargs", "an object is expected"},
		{chats, talk + `"chat_template_kwargs": {"messages": []}}`, "chat_template_kwargs", "messages"},
		{chats, talk + `"chat_template_kwargs": {"raise_exception": 1}}`, "chat_template_kwargs", "raise_exception"},
	}
	for _, test := range tests {
		a := s.ask(t, test.path, test.body)
		require.Equal(t, 400, a.Status, "%.200s: %s", test.body, a.Text)
		require.Equal(t, test.param, a.Error.Param, "%.200s: %s", test.body, a.Text)
		require.Equal(t, "invalid_request_error", a.Error.Type)
		require.NotEmpty(t, a.Error.Message)
		require.Contains(t, a.Error.Message, test.says)
	}
}

// Ensure that fields without effect and empty unknown fields are accepted. Whole numbers may be written as fractions,
// such as 5.0.
func TestFieldsThatChangeNothingAreAccepted(t *testing.T) {
	s := start(t, nil)
	for _, fields := range []string{
		`"repeat_penalty": 1.0, "repeat_last_n": 64, "n_predict": null, "n_probs": 0`,
		`"mirostat": 0, "mirostat_tau": 5.0, "typical_p": 1, "tfs_z": 1.0, "top_n_sigma": -1`,
		`"dry_multiplier": 0.0, "dry_base": 1.75, "dry_sequence_breakers": ["\n"]`,
		`"samplers": [], "options": {}, "grammar": "", "json_schema": null, "reasoning_effort": null, "include_reasoning": true`,
		`"do_sample": true, "num_beams": 1, "raw": false, "priority": 0.0, "response_format": {"type": "text"}`,
		`"cache_prompt": true, "id_slot": -1, "keep_alive": "5m", "store": false, "metadata": {"a": "b"}`,
		`"tool_choice": "auto", "function_call": "none"`,
		`"user": "u", "store": true, "service_tier": "auto", "safety_identifier": "i", "prompt_cache_key": "k",
			"prompt_cache_retention": "24h", "parallel_tool_calls": false, "prediction": {"type": "content", "content": "x"}`,
		`"request_id": "r", "provider": {"order": ["a"]}, "usage": {"include": true}`,
		`"stop": ""`, `"stop": [""]`, `"stop": []`, `"stop": null`, `"stop": ["", ""]`,
		`"nobody_knows": null, "MAX_TOKENS": null, "nor_this": "", "nor_these": [], "nor_those": {}`,
		`"top_k": -1`,
		`"n": 1.0, "top_k": 5.0, "seed": 7.0, "min_tokens": 1.0`,
	} {
		for path, begin := range map[string]string{texts: text, chats: talk} {
			a := s.ask(t, path, begin+fields+"}")
			require.Equal(t, 200, a.Status, "%s: %s", fields, a.Text)
		}
	}
	for _, more := range []string{
		`"logprobs": 2.0, "best_of": 1.0`,
		`"use_beam_search": true, "min_tokens": 0, "presence_penalty": 0, "repetition_penalty": 1, "logit_bias": {}`,
		`"use_beam_search": true, "temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0, "seed": 5`,
		`"use_beam_search": false, "length_penalty": 1.0`,
	} {
		a := s.ask(t, texts, text+more+"}")
		require.Equal(t, 200, a.Status, "%s: %s", more, a.Text)
	}
	a := s.ask(t, chats, talk+`"max_completion_tokens": 1.0, "logprobs": true, "top_logprobs": 2.0, "echo": false, `+
		`"add_special_tokens": false, "chat_template_kwargs": {}, "return_token_ids": false, "continue_final_message": false}`)
	require.Equal(t, 200, a.Status, a.Text)
	for _, number := range []string{"2.0", "0.2e1", "2E+0"} {
		a := s.ask(t, texts, `{"model": "demo", "prompt": "ab12 ab", "temperature": 0, "max_tokens": `+number+"}")
		require.Equal(t, "12", a.Choices[0].Text, number)
	}
	for _, body := range []string{text + `"echo": true, `, talk + `"max_completion_tokens": 5, `} { // the tokens of a prompt that is sent elsewhere
		a := s.ask(t, "/tokenize", body+`"stream": true, "temperature": 0.5, "logprobs": null, "store": true}`)
		require.Equal(t, 200, a.Status, a.Text)
	}
}

// Ensure that the server ignores additional fields of messages. Some come from earlier answers, others are added by
// clients.
func TestFieldsOfMessagesThatChangeNothingAreAccepted(t *testing.T) {
	s := start(t, nil)
	const plain = `{"role": "assistant", "content": "Hi"`
	ask := func(fields string) *reply {
		body := demo + `"messages": [{"role": "user", "content": "x"}, ` + plain + fields + `}, {"role": "user", "content": "abc"}], `
		a := s.ask(t, chats, body+`"max_tokens": 4, "temperature": 0}`)
		require.Equal(t, 200, a.Status, "%s: %s", fields, a.Text)
		require.Equal(t, 200, s.ask(t, "/tokenize", body+`"stream": false}`).Status)
		return a
	}
	want := ask("").Usage
	for _, fields := range []string{
		`"refusal": null, "annotations": [], "audio": null, "function_call": null, "tool_calls": null`, // OpenAI's model_dump
		`"annotations": [{"type": "url_citation"}], "parsed": {"a": 1}, "tool_calls": []`,
		`"provider_specific_fields": {"refusal": null}, "reasoning_details": [], "images": []`,
		`"reasoning_details": [{"type": "reasoning.text", "text": "I think"}]`, // of OpenRouter, in a conversation that began there
		`"id": "m1", "created_at": 5, "metadata": {"a": 1}, "cache_control": {"type": "ephemeral"}, "type": "message"`,
		`"prefix": false, "partial": false, "nobody_knows": null`,
		`"injected": false, "message_id": "m", "reasoning_signature": null, "opts": {"visible": false}`, // of clients in editors
	} {
		require.Equal(t, want, ask(", "+fields).Usage)
	}
}

// Ensure that a body may omit the model. If max_tokens is -1, the answer may have as many tokens as fit.
func TestWhatOtherServersTakeIsTaken(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.MaxModelLen = 64 })
	for _, test := range []struct {
		path, body string
		tokens     int
	}{
		{texts, `{"prompt": "12345678", "max_tokens": 2, "ignore_eos": true}`, 2},
		{texts, `{"model": null, "prompt": "12345678", "max_tokens": 2, "ignore_eos": true}`, 2},
		{texts, demo + `"prompt": "12345678", "max_tokens": -1, "ignore_eos": true}`, 64 - 9},
		{texts, demo + `"prompt": "12345678", "max_tokens": -1, "ignore_eos": true, "use_beam_search": true}`, 64 - 9},
		{texts, demo + `"prompt": "12345678", "max_tokens": -1, "ignore_eos": true, "min_tokens": 5, "echo": true}`, 64 - 9},
		{texts, demo + `"prompt": "12345678", "max_tokens": -1, "ignore_eos": true, "add_special_tokens": false}`, 64 - 8},
		{chats, `{"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "ignore_eos": true}`, 2},
		{chats, `{"messages": [{"role": "user", "content": "x"}], "max_tokens": -1, "ignore_eos": true}`, 64 - 5},
		{chats, `{"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": -1, "ignore_eos": true}`, 64 - 5},
	} {
		a := s.ask(t, test.path, test.body)
		require.Equal(t, 200, a.Status, "%s: %s", test.body, a.Text)
		require.Equal(t, test.tokens, a.Usage.Completion, test.body)
	}
}
