package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// A foreign field is one of OpenAI, vLLM, llama.cpp, ollama or another server that would change the answer, and
// is not served. null, what is empty, and the neutral value are let through.
type foreign struct {
	name    string
	neutral string // as JSON; "": none
	instead string // what does the same, or almost
	only    string // of one endpoint: the field that the other one's bodies have
}

// What several foreign fields have in common.
const (
	useLimit   = "use max_tokens"
	useCut     = "use top_p or min_p"
	usePenalty = "use repetition_penalty, presence_penalty or frequency_penalty"
	useKwargs  = "use chat_template_kwargs with the names that the model's template has, such as enable_thinking"
	useSchema  = "answers cannot be held to a schema or a grammar; leave the field out, ask for JSON in the prompt, and check the answer"
)

var foreigners = slices.Concat([]foreign{
	// OpenAI and vLLM
	{name: "tools"}, {name: "functions"}, {name: "tool_choice"}, {name: "function_call"}, {name: "suffix"}, {name: "audio"},
	{name: "modalities"}, {name: "prompt_logprobs"}, {name: "truncate_prompt_tokens"}, {name: "allowed_token_ids"}, {name: "bad_words"},
	{name: "prompt_embeds"}, {name: "documents"}, {name: "chat_template"}, {name: "logits_processors"}, {name: "verbosity"},
	{name: "web_search_options"}, {name: "return_tokens_as_token_ids", neutral: "false"}, {name: "return_token_ids", neutral: "false"},
	{name: "continue_final_message", neutral: "false"}, {name: "include_stop_str_in_output", neutral: "false"},
	{name: "skip_special_tokens", neutral: "true"}, {name: "spaces_between_special_tokens", neutral: "true"}, {name: "priority", neutral: "0"},
	{name: "add_special_tokens", neutral: "true", only: "prompt"}, {name: "add_special_tokens", neutral: "false", only: "messages"},
	{name: "echo", neutral: "false", only: "messages"}, {name: "best_of", neutral: "1", instead: "use n", only: "messages"},
	{name: "max_completion_tokens", instead: useLimit, only: "prompt"}, {name: "top_logprobs", neutral: "0", instead: "use logprobs", only: "prompt"},
	{name: "chat_template_kwargs", neutral: "{}", instead: "use /v1/chat/completions", only: "prompt"},
	{name: "reasoning_effort", instead: useKwargs}, {name: "thinking_token_budget"},
	// llama.cpp
	{name: "n_predict", instead: useLimit}, {name: "n_probs", neutral: "0", instead: "use logprobs"}, {name: "n_indent", neutral: "0"},
	{name: "min_keep", neutral: "0"}, {name: "t_max_predict_ms", neutral: "0", instead: useLimit},
	{name: "repeat_penalty", neutral: "1", instead: usePenalty}, {name: "mirostat", neutral: "0", instead: useCut},
	{name: "typical_p", neutral: "1", instead: useCut}, {name: "tfs_z", neutral: "1", instead: useCut}, {name: "top_n_sigma", neutral: "-1", instead: useCut},
	{name: "dynatemp_range", neutral: "0", instead: "use temperature"}, {name: "dry_multiplier", neutral: "0", instead: usePenalty},
	{name: "xtc_probability", neutral: "0", instead: useCut}, {name: "lora", instead: "merge the adapter into the model"},
	{name: "samplers", instead: "use top_k, top_p, min_p and temperature, which are applied as in vLLM"},
	// ollama
	{name: "options", neutral: "{}", instead: "use its settings as fields of the request: temperature, top_k, top_p, min_p, seed, stop, max_tokens"},
	{name: "system", instead: "use a message with the role system"}, {name: "num_predict", instead: useLimit},
	{name: "template", instead: "use /v1/completions with a prompt that is complete"}, {name: "raw", neutral: "false", instead: "use /v1/completions, which has no template"},
	{name: "think", instead: useKwargs}, {name: "images"},
	// others
	{name: "max_new_tokens", instead: useLimit}, {name: "max_output_tokens", instead: useLimit}, {name: "enable_thinking", instead: useKwargs},
	{name: "do_sample", neutral: "true", instead: "use temperature 0"}, {name: "num_beams", neutral: "1", instead: "use use_beam_search with n"},
	{name: "no_repeat_ngram_size", neutral: "0", instead: usePenalty}, {name: "stop_sequences", instead: "use stop"},
}, schemas("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "json_schema", "format", "regex", "ebnf"))

func schemas(names ...string) (list []foreign) {
	for _, name := range names {
		list = append(list, foreign{name: name, instead: useSchema})
	}
	return list
}

// details are fields that act only beside another one, which is refused. Where the other one is given with its
// neutral value, they change nothing.
var details = map[string]string{
	"repeat_last_n": "repeat_penalty", "mirostat_tau": "mirostat", "mirostat_eta": "mirostat", "dynatemp_exponent": "dynatemp_range",
	"dry_base": "dry_multiplier", "dry_allowed_length": "dry_multiplier", "dry_penalty_last_n": "dry_multiplier",
	"dry_sequence_breakers": "dry_multiplier", "xtc_threshold": "xtc_probability",
}

// unsupported refuses foreign fields by name.
func unsupported(fields map[string]json.RawMessage) error {
	kind := "prompt"
	if _, talk := fields["messages"]; talk {
		kind = "messages"
	}
	for _, f := range foreigners {
		if (f.only == "" || f.only == kind) && !f.changesNothing(fields[f.name]) {
			return f.refuse(f.name)
		}
		for name, of := range details {
			if _, given := fields[of]; of == f.name && !given && !f.changesNothing(fields[name]) {
				return f.refuse(name)
			}
		}
	}
	return nil
}

func (f *foreign) refuse(name string) error {
	if f.instead == "" {
		return invalid(name, "%s is not supported by this server.", name)
	}
	return invalid(name, "%s is not supported by this server: %s.", name, f.instead)
}

// changesNothing reports whether the answer is the same with a value as without it.
func (f *foreign) changesNothing(raw json.RawMessage) bool {
	value := string(bytes.TrimSpace(raw))
	switch value {
	case "", "null", "[]", `""`, `"none"`, `"auto"`, `["text"]`, f.neutral:
		return true
	}
	var format struct {
		Type string `json:"type"`
	}
	if f.name == "response_format" && json.Unmarshal(raw, &format) == nil && format.Type == "text" {
		return true
	}
	number, err := strconv.ParseFloat(value, 64)
	neutral, none := strconv.ParseFloat(f.neutral, 64)
	return err == nil && none == nil && number == neutral
}
