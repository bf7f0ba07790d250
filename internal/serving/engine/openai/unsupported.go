package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A foreignField is a field of OpenAI, vLLM, llama.cpp, ollama or another server that would change the answer and is not
// supported. null, an empty value and the neutral value are accepted. Unknown fields are refused as well; an entry here
// makes the error say what to use instead.
type foreignField struct {
	name    string
	neutral string // a value without effect, as JSON, or ""
	instead string // what to use instead, or ""
}

// What to use instead of several fields.
const (
	useLimit   = "use max_tokens"
	useCut     = "use top_p or min_p"
	usePenalty = "use repetition_penalty, presence_penalty or frequency_penalty"
	useKwargs  = "use chat_template_kwargs with the names that the model's template has, such as enable_thinking"
	useBias    = "use logit_bias"
	useLora    = "merge the adapter into the model"
	useSchema  = "use response_format or structured_outputs"
)

var foreignFields = slices.Concat(
	unserved("use tools and tool_choice", "functions", "function_call"),
	unserved("use /v1/chat/completions", "tools", "tool_choice"),
	unserved("", "audio", "images", "modalities",
		"documents", "prompt_embeds", "logits_processors", "thinking_token_budget",
		"verbosity", "web_search_options"),
	unserved(useSchema, "grammar", "json_schema", "format", "regex", "ebnf"),
	unserved("leave it out", "guided_decoding_backend"),
	unserved("leave it out, or use disable_any_whitespace of structured_outputs", "guided_whitespace_pattern"),
	unserved(useLimit, "n_predict", "num_predict", "max_new_tokens", "max_output_tokens"),
	unserved(useKwargs, "think", "thinking", "enable_thinking", "reasoning", "reasoning_budget", "thinking_budget"),
	unserved("reasoning is in reasoning_content; include_reasoning false leaves it out", "reasoning_format",
		"separate_reasoning", "reasoning_split", "thinking_forced_open"),
	unserved("start it with --max-model-len", "num_ctx", "n_ctx"),
	unserved("use stop_token_ids", "stop_tokens", "stop_regex"),
	unserved(useLora, "lora", "lora_path", "adapter_id"),
	unserved(useBias, "allowed_token_ids", "bad_words"),
	unserved("start it with --chat-template", "chat_template"),
	[]foreignField{
		// of the other endpoint
		{"suffix", "", "use /v1/completions"},
		{"reasoning_effort", "", useKwargs},
		{"echo", "false", ""},
		{"best_of", "1", "use n"},
		{"max_completion_tokens", "", useLimit},
		{"top_logprobs", "0", "use logprobs"},
		{"chat_template_kwargs", "{}", "use /v1/chat/completions"},
		// vLLM
		{"include_reasoning", "true", useKwargs},
		{"return_tokens_as_token_ids", "false", ""},
		{"continue_final_message", "false", "use /v1/chat/completions"},
		{"spaces_between_special_tokens", "true", ""},
		{"priority", "0", ""},
		// llama.cpp
		{"n_probs", "0", "use logprobs"},
		{"n_indent", "0", ""},
		{"min_keep", "0", ""},
		{"t_max_predict_ms", "0", useLimit},
		{"repeat_penalty", "1", usePenalty},
		{"dry_multiplier", "0", usePenalty},
		{"mirostat", "0", useCut},
		{"typical_p", "1", useCut},
		{"tfs_z", "1", useCut},
		{"top_n_sigma", "-1", useCut},
		{"xtc_probability", "0", useCut},
		{"dynatemp_range", "0", "use temperature"},
		{"samplers", "", "use top_k, top_p, min_p and temperature, which are applied as in vLLM"},
		// ollama
		{"options", "{}",
			"use its settings as fields of the request: temperature, top_k, seed, stop, max_tokens, ..."},
		{"context", "", "use a prompt of tokens, or messages"},
		{"system", "", "use a message with the role system"},
		{"template", "", "use /v1/completions with a prompt that is complete"},
		{"raw", "false", "use /v1/completions, which has no template"},
		// transformers and others
		{"do_sample", "true", "use temperature 0"},
		{"num_beams", "1", "use use_beam_search with n"},
		{"no_repeat_ngram_size", "0", usePenalty},
		{"stop_sequences", "", "use stop"},
		{"return_tokens", "false", "use return_token_ids"},
		{"no_stop_trim", "false", "use include_stop_str_in_output"},
		{"stream_reasoning", "true", ""},
		{"watermark", "false", ""},
	},
)

// harmlessFields are fields that are ignored because they do not change the answer: names and notes of the client, hints
// on where and when to compute the answer, and settings of tools and images, which are not supported.
var harmlessFields = []string{
	// OpenAI
	"metadata", "parallel_tool_calls", "prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
	"safety_identifier", "service_tier", "store",
	// vLLM and SGLang
	"media_io_kwargs", "mm_processor_kwargs", "request_id", "rid",
	// llama.cpp
	"cache_prompt", "id_slot", "n_cache_reuse", "n_discard", "n_keep", "return_progress",
	// ollama and routers
	"keep_alive", "models", "provider", "route", "session_id", "trace", "usage",
}

func unserved(instead string, names ...string) (list []foreignField) {
	for _, name := range names {
		list = append(list, foreignField{name: name, instead: instead})
	}
	return list
}

// dependentFields have an effect only together with another field, which is not supported. They are accepted if the
// other field has its neutral value, but not if it is missing, because its default on another server may have an effect.
var dependentFields = []struct{ name, other string }{
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

// unsupported returns an error for a field of a body that would be ignored although it changes the answer: one of
// foreignFields that types do not have, or an unknown one.
func unsupported(fields map[string]json.RawMessage, types ...reflect.Type) error {
	served := map[string]bool{}
	for _, t := range types {
		for name := range jsonNames(t) {
			served[name] = true
		}
	}
	for _, f := range foreignFields {
		if served[f.name] {
			continue
		}
		if !f.changesNothing(fields[f.name]) {
			return f.refuse(f.name)
		}
		for _, d := range dependentFields {
			raw := fields[d.other]
			missing := raw == nil || string(raw) == "null"
			if d.other == f.name && missing && !f.changesNothing(fields[d.name]) {
				return f.refuse(d.name)
			}
		}
	}
	known := knownNames(served)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		empty := foreignField{neutral: "{}"}
		if !known[name] && !empty.changesNothing(fields[name]) {
			return unknownField(name, known)
		}
	}
	return nil
}

// knownNames returns the names of supported fields and of the fields in the lists of this file.
func knownNames(served map[string]bool) map[string]bool {
	known := maps.Clone(served)
	for _, f := range foreignFields {
		known[f.name] = true
	}
	for _, d := range dependentFields {
		known[d.name] = true
	}
	for _, name := range harmlessFields {
		known[name] = true
	}
	return known
}

// unknownField returns the error for an unknown field.
func unknownField(name string, known map[string]bool) error {
	for k := range known {
		if strings.EqualFold(k, name) {
			return invalid(name, "%q is not a field of this request; %q is.", name, k)
		}
	}
	return invalid(name, "%q is not a field of this request; check its name, or leave it out.", name)
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
	number, err := strconv.ParseFloat(value, 64)
	neutral, none := strconv.ParseFloat(f.neutral, 64)
	return err == nil && none == nil && number == neutral
}
