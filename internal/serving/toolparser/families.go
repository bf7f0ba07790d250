package toolparser

import (
	"fmt"
	"slices"
	"strings"
)

// list returns the Writing of calls that are a JSON list of objects after a marker. arguments is the name of the member
// with the arguments.
func list(marker, arguments, suffix string) Writing {
	return Writing{Before: marker + "[", Begin: `{"name": "`, Middle: `", "` + arguments + `": `, End: "}", Separator: ", ", After: "]" + suffix,
		Marker: marker}
}

// unmarked returns w for a model that also writes other calls after the marker, which a constraint must allow.
func unmarked(w Writing) Writing {
	w.Marker = ""
	return w
}

// toolParsers are the known tool parsers. A parser's field template has lists of texts. A chat template fits
// the parser if it contains all texts of one list. Choose takes the first parser that fits. Parsers of the
// same name differ in Writing.
var toolParsers = []*ToolParser{
	{Name: "openai", harmony: true, template: [][]string{{markChannel, markMessage}},
		Writing: Writing{Begin: markChannel + "commentary to=functions.", Middle: " " + markFormat + "json" + markMessage, Once: true,
			Other: [2]string{" to=functions.", markChannel + "commentary json" + markMessage}}}, // as chat templates write earlier calls
	{Name: "mistral", Begin: []string{"[TOOL_CALLS]"}, Named: &Named{ID: "[CALL_ID]", Args: "[ARGS]"}, NineIDs: true,
		template: [][]string{{"[TOOL_CALLS]", "[ARGS]"}},
		Writing:  Writing{Begin: "[TOOL_CALLS]", Middle: "[ARGS]", Marker: "[TOOL_CALLS]"}},
	{Name: "mistral", Begin: []string{"[TOOL_CALLS]"}, Named: &Named{ID: "[CALL_ID]", Args: "[ARGS]"}, NineIDs: true,
		template: [][]string{{"[TOOL_CALLS]"}}, Writing: list("[TOOL_CALLS]", "arguments", "")},
	{Name: "deepseek_v31", Begin: []string{"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜tool▁call▁begin｜>"},
		End: []string{"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}, Named: &Named{Args: "<｜tool▁sep｜>"},
		template: [][]string{{"<｜tool▁calls▁begin｜>", "'<｜tool▁sep｜>' + tool['function']['arguments']"}},
		Writing: Writing{Before: "<｜tool▁calls▁begin｜>", Begin: "<｜tool▁call▁begin｜>", Middle: "<｜tool▁sep｜>",
			End: "<｜tool▁call▁end｜>", After: "<｜tool▁calls▁end｜>", Marker: "<｜tool▁calls▁begin｜>"}},
	{Name: "deepseek_v3", Begin: []string{"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>"},
		End: []string{"```<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}, Named: &Named{Args: "```json\n"},
		template: [][]string{{"<｜tool▁calls▁begin｜>", "```json"}},
		Writing: Writing{Before: "<｜tool▁calls▁begin｜>", Begin: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", Middle: "\n```json\n",
			End: "\n```<｜tool▁call▁end｜>", Separator: "\n", After: "<｜tool▁calls▁end｜>", Marker: "<｜tool▁calls▁begin｜>"}},
	{Name: "granite", Begin: []string{"<|tool_call|>", "<tool_call>"}, End: []string{"</tool_call>"},
		template: [][]string{{"<|tool_call|>", "<|start_of_role|>"}}, Writing: list("<|tool_call|>", "arguments", "")},
	{Name: "phi4_mini_json", Begin: []string{"functools", "<|tool_call|>"}, End: []string{"<|/tool_call|>"},
		template: [][]string{{"functools["}}, Writing: list("functools", "arguments", "")},
	{Name: "phi4_mini_json", Begin: []string{"functools", "<|tool_call|>"}, End: []string{"<|/tool_call|>"},
		template: [][]string{{"<|tool|>", "<|/tool|>"}}, Writing: list("<|tool_call|>", "arguments", "<|/tool_call|>")},
	{Name: "nemotron_json", Begin: []string{"<TOOLCALL>"}, End: []string{"</TOOLCALL>"},
		template: [][]string{{"<TOOLCALL>"}}, Writing: list("<TOOLCALL>", "arguments", "</TOOLCALL>")},
	{Name: "qwen3_coder", Begin: []string{"<tool_call>\n<function=", "<function="}, End: []string{"</tool_call>"},
		Tagged:   &Tagged{Parameter: "<parameter=", ParameterEnd: "</parameter>", End: "</function>"},
		template: [][]string{{"<function=", "<parameter="}},
		Writing: Writing{Begin: "<tool_call>\n<function=", Middle: ">\n", End: "</function>\n</tool_call>", Separator: "\n",
			Marker: "<tool_call>"}},
	{Name: "glm45", Begin: []string{"<tool_call>"}, End: []string{"</tool_call>"},
		Tagged: &Tagged{Parameter: "<arg_key>", NameEnd: "</arg_key>", Value: "<arg_value>", ParameterEnd: "</arg_value>",
			End: "</tool_call>"},
		template: [][]string{{"<tool_call>", "<arg_key>"}},
		Writing:  Writing{Begin: "<tool_call>", Middle: "\n", End: "</tool_call>", Separator: "\n", Marker: "<tool_call>"}},
	{Name: "kimi_k2", Begin: []string{"<|tool_calls_section_begin|><|tool_call_begin|>", "<|tool_call_begin|>"},
		End:      []string{"<|tool_call_end|>", "<|tool_calls_section_end|>"},
		Named:    &Named{Args: "<|tool_call_argument_begin|>", Numbered: true, Before: functions},
		template: [][]string{{"<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"}},
		Writing: Writing{Before: "<|tool_calls_section_begin|>", Begin: "<|tool_call_begin|>" + functions,
			Middle: ":0<|tool_call_argument_begin|>", End: "<|tool_call_end|>", After: "<|tool_calls_section_end|>", Once: true}},
	{Name: "hermes", Begin: []string{"<tool_call>"}, End: []string{"</tool_call>"},
		template: [][]string{{"<tool_call>", "arguments"}},
		Writing: Writing{Begin: "<tool_call>\n{\"name\": \"", Middle: `", "arguments": `, End: "}\n</tool_call>", Separator: "\n",
			Marker: "<tool_call>"}},
	{Name: "lfm2", Begin: []string{"<|tool_call_start|>"}, End: []string{"<|tool_call_end|>"}, Pythonic: true,
		template: [][]string{{"<|tool_call_start|>"}, {"<|tool_list_start|>", "<|tool_response_start|>"}},
		Writing:  unmarked(list("<|tool_call_start|>", "arguments", "<|tool_call_end|>"))},
	{Name: "pythonic", Begin: []string{"<|python_start|>"}, End: []string{"<|python_end|>"}, Bare: true, Pythonic: true,
		template: [][]string{{"[func_name1("}}, Writing: list("", "parameters", "")},
	{Name: "llama3_json", Begin: []string{"<|python_tag|>"}, Bare: true, Separator: ';',
		template: [][]string{{"<|python_tag|>"}, {"<|start_header_id|>", `"parameters"`}},
		Writing:  Writing{Begin: `{"name": "`, Middle: `", "parameters": `, End: "}", Separator: "; ", Marker: "<|python_tag|>"}},
	{Name: "json", Begin: []string{"```json\n", "```\n"}, End: []string{"```"}, Bare: true, Separator: ',',
		Writing: list("", "arguments", "")},
}

// reasoningParsers are the known reasoning parsers.
var reasoningParsers = []*ReasoningParser{
	{Name: "openai_gptoss", harmony: true, template: [][]string{{markChannel, markMessage}}},
	{Name: "deepseek_r1", Begin: "<think>", End: "</think>", Implied: true,
		template: [][]string{{"<｜Assistant｜>", "</think>"}}},
	{Name: "glm45", Begin: "<think>", End: "</think>", template: [][]string{{"</think>", "<arg_key>"}}},
	{Name: "kimi_k2", Begin: "<think>", End: "</think>", template: [][]string{{"</think>", "<|tool_calls_section_begin|>"}}},
	{Name: "qwen3", Begin: "<think>", End: "</think>", template: [][]string{{"<think>"}, {"</think>"}}},
}

// general returns the tool parser named json, which finds calls in JSON, also without a marker.
func general() *ToolParser { return toolParsers[len(toolParsers)-1] }

// Choose returns the format of a model by its chat template. If no tool parser fits the template, Choose takes the one
// named json.
func Choose(template string) Format {
	f := Format{Tools: general()}
	if i := slices.IndexFunc(toolParsers, func(t *ToolParser) bool { return matches(template, t.template) }); i >= 0 {
		f.Tools = toolParsers[i]
	}
	if i := slices.IndexFunc(reasoningParsers, func(r *ReasoningParser) bool { return matches(template, r.template) }); i >= 0 {
		f.Reasoning = reasoningParsers[i]
	}
	return f
}

// matches reports whether template contains all texts of one of the lists in sets.
func matches(template string, sets [][]string) bool {
	return slices.ContainsFunc(sets, func(all []string) bool {
		return !slices.ContainsFunc(all, func(text string) bool { return !strings.Contains(template, text) })
	})
}

// Tools returns the tool parser with the given name. If several parsers have the name, it returns the one that fits
// the chat template. If none fits, it returns the first.
func Tools(name, template string) (*ToolParser, error) {
	switch name { // vLLM's other names
	case "qwen3_xml":
		name = "qwen3_coder"
	case "llama4_pythonic":
		name = "pythonic"
	}
	for _, fits := range []func(t *ToolParser) bool{
		func(t *ToolParser) bool { return t.Name == name && matches(template, t.template) },
		func(t *ToolParser) bool { return t.Name == name },
	} {
		if i := slices.IndexFunc(toolParsers, fits); i >= 0 {
			return toolParsers[i], nil
		}
	}
	return nil, fmt.Errorf("the tool parser %q is not known; there are %s", name, ToolNames())
}

// ToolNames lists the names of tool parsers.
func ToolNames() string { return names(toolParsers, func(t *ToolParser) string { return t.Name }) }

// ReasoningNames lists the names of reasoning parsers.
func ReasoningNames() string {
	return names(reasoningParsers, func(r *ReasoningParser) string { return r.Name })
}

// Thinking returns the reasoning parser with a name.
func Thinking(name string) (*ReasoningParser, error) {
	if i := slices.IndexFunc(reasoningParsers, func(r *ReasoningParser) bool { return r.Name == name }); i >= 0 {
		return reasoningParsers[i], nil
	}
	return nil, fmt.Errorf("the reasoning parser %q is not known; there are %s", name, ReasoningNames())
}

func names[T any](all []T, name func(T) string) string {
	list := make([]string, len(all))
	for i, one := range all {
		list[i] = name(one)
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ", ")
}

// AddTools sets f.Tools if it is nil. The new tool parser is the one named openai if f.Reasoning parses the harmony
// format, and otherwise the one named json.
func (f *Format) AddTools() {
	switch {
	case f.Tools != nil:
	case f.Harmony():
		f.Tools = toolParsers[0]
	default:
		f.Tools = general()
	}
}

// Check returns an error if the format has two parsers and only one of them is for the harmony format.
func (f *Format) Check() error {
	if f.Tools != nil && f.Reasoning != nil && f.Tools.harmony != f.Reasoning.harmony {
		return fmt.Errorf("the tool parser %s and the reasoning parser %s cannot be combined; openai and openai_gptoss belong together",
			f.Tools.Name, f.Reasoning.Name)
	}
	return nil
}

// Harmony reports whether answers are in the harmony format.
func (f *Format) Harmony() bool {
	return f.Tools != nil && f.Tools.harmony || f.Reasoning != nil && f.Reasoning.harmony
}

// Markers returns the texts that parsers of the format look for in an answer. If the tokenizer has special tokens for
// these texts, the text of the answer must include them.
func (f *Format) Markers() []string {
	var all []string
	if f.Harmony() {
		all = append(all, harmonyMarks...)
	}
	if f.Tools != nil {
		all = append(all, f.Tools.markers()...)
	}
	if f.Reasoning != nil {
		all = append(all, f.Reasoning.Begin, f.Reasoning.End)
	}
	return slices.DeleteFunc(all, func(text string) bool { return text == "" })
}
