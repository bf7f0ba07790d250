package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// A foreignField is a field of OpenAI, vLLM, llama.cpp, ollama or another server that would change the answer and
// is not served. null, an empty value and the neutral value are accepted.
type foreignField struct {
	name    string
	neutral string // the value that changes nothing, as JSON; "" if there is none
	instead string // what to use instead; "" if there is nothing
	only    string // refused only in bodies that have this field, prompt or messages; "" for both
}

// What to use instead of several fields.
const (
	useLimit   = "use max_tokens"
	useCut     = "use top_p or min_p"
	usePenalty = "use repetition_penalty, presence_penalty or frequency_penalty"
	useKwargs  = "use chat_template_kwargs with the names that the model's template has, such as enable_thinking"
	useBias    = "use logit_bias"
	useSchema  = "answers cannot be held to a schema or a grammar; " +
		"leave the field out, ask for JSON in the prompt, and check the answer"
)

var foreignFields = slices.Concat(
	unserved("", "tools", "functions", "tool_choice", "function_call", "suffix", "audio", "images", "modalities",
		"documents", "truncate_prompt_tokens", "prompt_embeds", "logits_processors", "thinking_token_budget",
		"verbosity", "web_search_options"),
	unserved(useSchema, "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
		"guided_grammar", "grammar", "json_schema", "format", "regex", "ebnf"),
	unserved(useLimit, "n_predict", "num_predict", "max_new_tokens", "max_output_tokens"),
	unserved(useKwargs, "think", "enable_thinking"),
	unserved(useBias, "allowed_token_ids", "bad_words"),
	unserved("use /v1/completions with echo and logprobs", "prompt_logprobs"),
	unserved("start it with --chat-template", "chat_template"),
	[]foreignField{
		// of one endpoint
		{"reasoning_effort", "", useKwargs, "prompt"},
		{"add_special_tokens", "true", "", "prompt"},
		{"add_special_tokens", "false", "", "messages"},
		{"echo", "false", "", "messages"},
		{"best_of", "1", "use n", "messages"},
		{"max_completion_tokens", "", useLimit, "prompt"},
		{"top_logprobs", "0", "use logprobs", "prompt"},
		{"chat_template_kwargs", "{}", "use /v1/chat/completions", "prompt"},
		// vLLM
		{"include_reasoning", "true", useKwargs, ""},
		{"return_tokens_as_token_ids", "false", "", ""},
		{"return_token_ids", "false", "", ""},
		{"continue_final_message", "false", "", ""},
		{"include_stop_str_in_output", "false", "", ""},
		{"skip_special_tokens", "true", "", ""},
		{"spaces_between_special_tokens", "true", "", ""},
		{"priority", "0", "", ""},
		// llama.cpp
		{"n_probs", "0", "use logprobs", ""},
		{"n_indent", "0", "", ""},
		{"min_keep", "0", "", ""},
		{"t_max_predict_ms", "0", useLimit, ""},
		{"repeat_penalty", "1", usePenalty, ""},
		{"dry_multiplier", "0", usePenalty, ""},
		{"mirostat", "0", useCut, ""},
		{"typical_p", "1", useCut, ""},
		{"tfs_z", "1", useCut, ""},
		{"top_n_sigma", "-1", useCut, ""},
		{"xtc_probability", "0", useCut, ""},
		{"dynatemp_range", "0", "use temperature", ""},
		{"samplers", "", "use top_k, top_p, min_p and temperature, which are applied as in vLLM", ""},
		{"lora", "", "merge the adapter into the model", ""},
		// ollama
		{"options", "{}",
			"use its settings as fields of the request: temperature, top_k, seed, stop, max_tokens, ...", ""},
		{"system", "", "use a message with the role system", ""},
		{"template", "", "use /v1/completions with a prompt that is complete", ""},
		{"raw", "false", "use /v1/completions, which has no template", ""},
		// transformers and others
		{"do_sample", "true", "use temperature 0", ""},
		{"num_beams", "1", "use use_beam_search with n", ""},
		{"no_repeat_ngram_size", "0", usePenalty, ""},
		{"stop_sequences", "", "use stop", ""},
	},
)

func unserved(instead string, names ...string) (list []foreignField) {
	for _, name := range names {
		list = append(list, foreignField{name: name, instead: instead})
	}
	return list
}

// dependentFields act only together with another field, which is refused. They are accepted if the other field is
// given with its neutral value, and refused if it is missing: the other server may have another default.
var dependentFields = []struct{ name, of string }{
	{"repeat_last_n", "repeat_penalty"},
	{"mirostat_tau", "mirostat"},
	{"mirostat_eta", "mirostat"},
	{"dynatemp_exponent", "dynatemp_range"},
	{"dry_base", "dry_multiplier"},
	{"dry_allowed_length", "dry_multiplier"},
	{"dry_penalty_last_n", "dry_multiplier"},
	{"dry_sequence_breakers", "dry_multiplier"},
	{"xtc_threshold", "xtc_probability"},
}

// unsupported returns an error that names the first foreign field of a body.
func unsupported(fields map[string]json.RawMessage) error {
	kind := "prompt"
	if _, chat := fields["messages"]; chat {
		kind = "messages"
	}
	for _, f := range foreignFields {
		if (f.only == "" || f.only == kind) && !f.changesNothing(fields[f.name]) {
			return f.refuse(f.name)
		}
		for _, d := range dependentFields {
			raw := fields[d.of]
			missing := raw == nil || string(raw) == "null"
			if d.of == f.name && missing && !f.changesNothing(fields[d.name]) {
				return f.refuse(d.name)
			}
		}
	}
	return nil
}

func (f *foreignField) refuse(name string) error {
	if f.instead == "" {
		return invalid(name, "%s is not supported by this server.", name)
	}
	return invalid(name, "%s is not supported by this server: %s.", name, f.instead)
}

// changesNothing reports whether the answer is the same with a value as without it.
func (f *foreignField) changesNothing(raw json.RawMessage) bool {
	value := string(bytes.TrimSpace(raw))
	switch value {
	case "", "null", "[]", `""`, `["text"]`, f.neutral:
		return true
	case `"none"`, `"auto"`:
		return f.name == "tool_choice" || f.name == "function_call"
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
