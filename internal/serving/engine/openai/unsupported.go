package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A foreignField is a field that OpenAI, vLLM, llama.cpp, ollama, another server or another endpoint of this server
// has. A request whose endpoint does not support the field is refused, unless changesNothing accepts the field's value.
// Fields that are not known are refused in the same way. For a foreignField, the error can also say what to use
// instead.
type foreignField struct {
	name        string
	neutral     string // a value without effect, as JSON, or ""
	alternative string // what to use instead, or ""
}

// A fieldTable lists the fields of an object that this package knows but does not serve. A field that is neither served
// nor in the table is refused unless it is null, empty or ["text"].
type fieldTable struct {
	foreign  []foreignField
	harmless []string // ignored

	// dependent has fields that have an effect only together with another field. Its keys are these dependent fields.
	// Its values are the names of the other fields, each of which is in foreign. For example, mirostat_tau has no effect
	// without mirostat.
	//   - If an object has mirostat_tau and a mirostat that is not null, mirostat_tau is ignored. The value of mirostat
	//     decides whether the object is refused.
	//   - If an object has mirostat_tau without such a mirostat, the rules of mirostat are applied to mirostat_tau.
	//     Another server may use mirostat by default, and there mirostat_tau would have an effect.
	dependent map[string]string

	unknown string // what is wrong with a field that is not in the table
}

// What to use instead of several fields.
const (
	useLimit   = "use max_tokens"
	useCut     = "use top_p or min_p"
	usePenalty = "use repetition_penalty, presence_penalty or frequency_penalty"
	useKwargs  = "use enable_thinking, reasoning_effort, or chat_template_kwargs with other names that the model's template has"
	useBias    = "use logit_bias"
	useLora    = "start it with --lora-modules NAME=FOLDER, and give NAME as model"
	useSchema  = "use response_format or structured_outputs"
)

// bodyFields are the fields of bodies.
var bodyFields = fieldTable{unknown: "is not a field of this request", foreign: slices.Concat(
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
), harmless: []string{ // names and notes of the client, hints on where and when to compute the answer, settings of tools and images
	// OpenAI
	"metadata", "parallel_tool_calls", "prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
	"safety_identifier", "service_tier", "store",
	// vLLM and SGLang
	"media_io_kwargs", "mm_processor_kwargs", "request_id", "rid",
	// llama.cpp
	"cache_prompt", "id_slot", "n_cache_reuse", "n_discard", "n_keep", "return_progress",
	// ollama and routers
	"keep_alive", "litellm_session_id", "models", "provider", "reasoningSummary", "route", "session_id", "trace", "usage",
}, dependent: map[string]string{
	"repeat_last_n": "repeat_penalty", "mirostat_tau": "mirostat", "mirostat_eta": "mirostat", "dynatemp_exponent": "dynatemp_range",
	"dry_base": "dry_multiplier", "dry_allowed_length": "dry_multiplier", "dry_penalty_last_n": "dry_multiplier",
	"dry_sequence_breakers": "dry_multiplier", "xtc_threshold": "xtc_probability",
}}

// messageFields says which fields of messages are refused and which are ignored. The harmless fields are ignored: they
// do not change the prompt. Clients copy such fields from earlier answers, or store data of their own in them.
var messageFields = fieldTable{unknown: "is not known", foreign: slices.Concat(
	[]foreignField{
		{"prefix", "false", "use continue_final_message"},
		{"partial", "false", "use continue_final_message"},
	},
	unserved("use reasoning", "thinking", "thinking_blocks"),
	unserved("use content", "refusal", "text"),
	unserved("use name", "tool_name"),
	unserved("", "audio", "images"),
), harmless: []string{
	"annotations", "cache_control", "created", "createdAt", "created_at", "finish_reason", "id", "index", "injected",
	"message_id", "metadata", "opts", "parsed", "provider_specific_fields", "reasoning_details", "reasoning_signature", "status", "stop_reason", "timestamp", "type",
}}

func unserved(alternative string, names ...string) (list []foreignField) {
	for _, name := range names {
		list = append(list, foreignField{name: name, alternative: alternative})
	}
	return list
}

// problem returns what is wrong with the field of this name in an object, or "" if the server accepts the field. The
// map served has the names of fields that are accepted with any value, and fields are all fields of the object. The
// result listed reports whether the server knows the name, from served or from the table.
func (t *fieldTable) problem(name string, fields map[string]json.RawMessage, served map[string]bool) (problem string, listed bool) {
	other, depends := t.dependent[name]
	if served[name] || slices.Contains(t.harmless, name) || depends && !IsNull(fields[other]) {
		return "", true
	}
	f := foreignField{neutral: "{}"}
	index := slices.IndexFunc(t.foreign, func(f foreignField) bool { return f.name == name || f.name == other })
	if index >= 0 {
		f = t.foreign[index]
	}
	switch {
	case f.changesNothing(fields[name]):
		return "", index >= 0
	case index >= 0:
		return f.problem(), true
	}
	for k := range served {
		if strings.EqualFold(k, name) {
			return fmt.Sprintf("%s; %q is.", t.unknown, k), false
		}
	}
	return t.unknown + "; check its name, or leave it out.", false
}

func (f *foreignField) problem() string {
	if f.alternative == "" {
		return "is not supported by this server."
	}
	return "is not supported by this server: " + f.alternative + "."
}

// changesNothing reports whether the field has no effect with this value, so that the answer is the same as
// without the field.
func (f *foreignField) changesNothing(raw json.RawMessage) bool {
	value := string(bytes.TrimSpace(raw))
	switch value {
	case "", "null", "[]", `""`, `["text"]`, f.neutral:
		return true
	case `"none"`, `"auto"`:
		return f.name == "tool_choice" || f.name == "function_call"
	}
	number, err := strconv.ParseFloat(value, 64)
	neutral, neutralErr := strconv.ParseFloat(f.neutral, 64)
	return err == nil && neutralErr == nil && number == neutral
}

// Fields are fields that a body may have besides those of the decoded struct.
type Fields struct {
	Harmless []string          // change no answer
	Refused  map[string]string // what to use instead, or ""; these must be missing, null, false, 0 or empty
	types    []reflect.Type    // whose fields change no answer
}

// check returns an error for a field of a body that this server does not support. A field is accepted if it is harmless
// or its value has no effect on an answer. The fields of the struct type t and of the types in f.types are accepted
// with any value.
func (f *Fields) check(fields map[string]json.RawMessage, t reflect.Type) error {
	served := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(f.Refused)) {
		foreign := foreignField{neutral: "{}", alternative: f.Refused[name]}
		if value := string(fields[name]); value != "false" && value != "0" && !foreign.changesNothing(fields[name]) {
			return invalid(name, "%s %s", name, foreign.problem())
		}
		served[name] = true
	}
	for _, t := range append(f.types, t) {
		for name := range jsonNames(t) {
			served[name] = true
		}
	}
	for _, name := range f.Harmless {
		served[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch problem, listed := bodyFields.problem(name, fields, served); {
		case problem == "":
		case listed:
			return invalid(name, "%s %s", name, problem)
		default:
			return invalid(name, "%q %s", name, problem)
		}
	}
	return nil
}

// checkMessages returns an error for a field of a message that this server does not support. A field is accepted if
// it is harmless or its value has no effect on an answer.
func checkMessages(raw json.RawMessage) error {
	served := map[string]bool{}
	for name := range jsonNames(reflect.TypeFor[chatMessage]()) {
		served[name] = true
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return nil // decoding reports what is wrong
	}
	for i := 0; d.More(); i++ {
		var fields map[string]json.RawMessage
		if d.Decode(&fields) != nil {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if problem, _ := messageFields.problem(name, fields, served); problem != "" {
				return invalid("messages", "Message %d has the field %q, which %s", i, name, problem)
			}
		}
	}
	return nil
}

// checkTypes returns an error that names the first message with a value of a wrong type, or nil if there is none.
func checkTypes(raw json.RawMessage) error {
	var messages []json.RawMessage
	if json.Unmarshal(raw, &messages) != nil {
		return nil
	}
	for i, m := range messages {
		if err := Read("messages", fmt.Sprintf("Message %d", i), m, &chatMessage{}); err != nil {
			return err
		}
	}
	return nil
}
