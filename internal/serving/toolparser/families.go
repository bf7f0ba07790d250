package toolparser

import (
	"fmt"
	"slices"
	"strings"
)

// toolParsers are the known tool parsers. Choose takes the first whose texts are in the chat template.
var toolParsers = []*ToolParser{
	{Name: "openai", harmony: true, template: [][]string{{markChannel, markMessage}}},
	{Name: "mistral", Begin: []string{"[TOOL_CALLS]"}, Named: &Named{ID: "[CALL_ID]", Args: "[ARGS]"}, NineIDs: true,
		template: [][]string{{"[TOOL_CALLS]"}}},
	{Name: "deepseek_v31", Begin: []string{"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜tool▁call▁begin｜>"},
		End: []string{"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}, Named: &Named{Args: "<｜tool▁sep｜>"}},
	{Name: "granite", Begin: []string{"<|tool_call|>", "<tool_call>"}, End: []string{"</tool_call>"},
		template: [][]string{{"<|tool_call|>", "<|start_of_role|>"}}},
	{Name: "phi4_mini_json", Begin: []string{"functools", "<|tool_call|>"}, End: []string{"<|/tool_call|>"},
		template: [][]string{{"<|tool|>", "<|/tool|>"}}},
	{Name: "hermes", Begin: []string{"<tool_call>"}, End: []string{"</tool_call>"},
		template: [][]string{{"<tool_call>", "arguments"}}},
	{Name: "llama3_json", Begin: []string{"<|python_tag|>"}, Bare: true, Separator: ';',
		template: [][]string{{"<|python_tag|>"}, {"<|start_header_id|>", `"parameters"`}}},
	{Name: "json", Begin: []string{"```json\n", "```\n"}, End: []string{"```"}, Bare: true, Separator: ','},
}

// reasoningParsers are the known reasoning parsers.
var reasoningParsers = []*ReasoningParser{
	{Name: "openai_gptoss", harmony: true, template: [][]string{{markChannel, markMessage}}},
	{Name: "deepseek_r1", Begin: "<think>", End: "</think>", Implied: true,
		template: [][]string{{"<｜Assistant｜>", "</think>"}}},
	{Name: "qwen3", Begin: "<think>", End: "</think>", template: [][]string{{"<think>"}, {"</think>"}}},
}

// General returns the parser of the name json, which finds calls that are JSON without a marker.
func General() *ToolParser { return toolParsers[len(toolParsers)-1] }

// Choose returns the format of the models that have a chat template. Without a known tool parser in the template,
// Tools is that of the name json.
func Choose(template string) Format {
	f := Format{Tools: General()}
	for _, t := range toolParsers {
		if has(template, t.template) {
			f.Tools = t
			break
		}
	}
	for _, r := range reasoningParsers {
		if has(template, r.template) {
			f.Reasoning = r
			break
		}
	}
	return f
}

// has reports whether template contains all texts of one of the sets.
func has(template string, sets [][]string) bool {
	return slices.ContainsFunc(sets, func(all []string) bool {
		return !slices.ContainsFunc(all, func(text string) bool { return !strings.Contains(template, text) })
	})
}

// Tools returns the tool parser with a name.
func Tools(name string) (*ToolParser, error) {
	for _, t := range toolParsers {
		if t.Name == name {
			return t, nil
		}
	}
	return nil, fmt.Errorf("the tool parser %q is not known; there are %s", name, names(toolParsers, func(t *ToolParser) string { return t.Name }))
}

// Thinking returns the reasoning parser with a name.
func Thinking(name string) (*ReasoningParser, error) {
	for _, r := range reasoningParsers {
		if r.Name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("the reasoning parser %q is not known; there are %s", name,
		names(reasoningParsers, func(r *ReasoningParser) string { return r.Name }))
}

func names[T any](all []T, name func(T) string) string {
	list := make([]string, len(all))
	for i, one := range all {
		list[i] = name(one)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// harmony reports whether answers are in the harmony format.
func (f *Format) harmony() bool {
	return f.Tools != nil && f.Tools.harmony || f.Reasoning != nil && f.Reasoning.harmony
}

// Markers returns the texts that a parser of the format looks for. Those that are special tokens must be in the text that
// it gets.
func (f *Format) Markers() []string {
	var all []string
	if f.harmony() {
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
