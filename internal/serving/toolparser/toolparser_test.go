package toolparser_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/toolparser"
)

// format returns the format with the parsers of these names; "" means no parser.
func format(t testing.TB, tools, reasoning string) *toolparser.Format {
	t.Helper()
	f := &toolparser.Format{}
	var err error
	if tools != "" {
		f.Tools, err = toolparser.Tools(tools, "")
		require.NoError(t, err)
	}
	if reasoning != "" {
		f.Reasoning, err = toolparser.Thinking(reasoning)
		require.NoError(t, err)
	}
	return f
}

// weather and weather2 are calls in the form in which the function show writes them. object and object2 are the
// arguments of these calls.
const (
	weather  = ` get_weather({"city": "Köln", "unit": "c"})`
	weather2 = ` get_weather({"city": "Rom {\"}\\"})`
	object   = `{"city": "Köln", "unit": "c"}`
	object2  = `{"city": "Rom {\"}\\"}`
)

func isTool(name string) bool { return strings.HasPrefix(name, "get_") }

// show returns events as text: reasoning in angle brackets, and each call as name(arguments).
func show(events []toolparser.Event) string {
	var text strings.Builder
	kind := toolparser.Content
	for _, e := range events {
		if kind == toolparser.Reasoning && e.Kind != kind {
			text.WriteString(">")
		}
		switch e.Kind {
		case toolparser.Reasoning:
			if kind != e.Kind {
				text.WriteString("<")
			}
			text.WriteString(e.Text)
		case toolparser.Call:
			text.WriteString(" " + e.Name + "(")
		case toolparser.CallEnd:
			text.WriteString(")")
		default:
			text.WriteString(e.Text)
		}
		kind = e.Kind
	}
	if kind == toolparser.Reasoning {
		text.WriteString(">")
	}
	return text.String()
}

// texts are answers that the families of models write. The field want has the events of an answer in the form
// that show writes.
var texts = []struct {
	name, tools, reasoning, prompt, text, want string
}{
	{"Hermes: one call", "hermes", "", "", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + object + "}\n</tool_call>", weather},
	{"Hermes: text and two calls", "hermes", "", "", "I look. \n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + object +
		"}\n</tool_call>\n<tool_call>\n{\"arguments\": " + object2 + ", \"name\": \"get_weather\"}\n</tool_call>\n", "I look." + weather + weather2},
	{"Hermes: text after a call", "hermes", "", "", "<tool_call>{\"name\": \"get_a\", \"arguments\": {}}</tool_call>\nDone.\n", " get_a({})Done."},
	{"Hermes: no arguments", "hermes", "", "", "<tool_call>{\"name\": \"get_a\"}</tool_call>", " get_a({})"},
	{"Hermes: null as arguments", "hermes", "", "", "<tool_call>{\"name\": \"get_a\", \"arguments\": null}</tool_call>", " get_a({})"},
	{"Hermes: arguments in a string", "hermes", "", "", `<tool_call>{"name": "get_a", "arguments": "{\"b\": \"\\n\"}"}</tool_call>`, ` get_a({"b": "\n"})`},
	{"Hermes: no call", "hermes", "", "", "a < b, <tool_ and <tool_call> are marks", "a < b, <tool_ and <tool_call> are marks"},
	{"Hermes: no object", "hermes", "", "", "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"name\": 5}</tool_call>"},
	{"Hermes: a call that is cut", "hermes", "", "", "<tool_call>{\"name\": \"get_a\", \"arguments\": {\"b\": [1, ", ` get_a({"b": [1, )`},
	{"Hermes: a marker that is cut", "hermes", "", "", "Yes <tool_c", "Yes <tool_c"},
	{"Hermes: only text", "hermes", "", "", " Hello\n\n", " Hello\n\n"},
	{"Qwen3: reasoning and a call", "hermes", "qwen3", "", "<think>\nHm, <b>?\n\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " +
		object + "}\n</tool_call>", "<Hm, <b>?>" + weather},
	{"Qwen3: reasoning and text", "hermes", "qwen3", "", "<think>\nHm\n</think>\n\nYes.\n", "<Hm>Yes.\n"},
	{"Qwen3: the prompt begins the reasoning", "hermes", "qwen3", "<|im_start|>assistant\n<think>\n", "Hm\n</think>\n\nYes.", "<Hm>Yes."},
	{"Qwen3: the prompt has empty reasoning", "hermes", "qwen3", "<think>\n\n</think>\n\n", "Yes <think>.", "Yes <think>."},
	{"Qwen3: reasoning that is cut", "hermes", "qwen3", "", "<think>\nHm\n</thi", "<Hm\n</thi>"},
	{"Qwen3: empty reasoning", "hermes", "qwen3", "", "<think>\n\n</think>\n\nYes", "Yes"},
	{"Qwen3: no reasoning", "hermes", "qwen3", "", " <thin ice", " <thin ice"},
	{"Qwen3: a call inside the reasoning", "hermes", "qwen3", "", "<think>\nI call.\n<tool_call>\n{\"name\": \"get_a\", \"arguments\": {\"x\": 1}}\n</tool_call>",
		`<I call.> get_a({"x": 1})`},
	{"Qwen3: two calls inside the reasoning of the prompt", "hermes", "qwen3", "<think>\n", "Hm <tool_call>{\"name\": \"get_a\", \"arguments\": {}}</tool_call>\n" +
		"<tool_call>{\"name\": \"get_b\", \"arguments\": {\"c\": \"</think>\"}}</tool_call>", `<Hm> get_a({}) get_b({"c": "</think>"})`},
	{"Qwen3: the reasoning ends after a call", "hermes", "qwen3", "", "<think>\nHm\n<tool_call>{\"name\": \"get_a\", \"arguments\": {}}</tool_call>\n</think>\n\nYes.",
		`<Hm> get_a({})Yes.`},
	{"Qwen3: a marker without a call inside the reasoning", "hermes", "qwen3", "", "<think>\nI could use <tool_call> here, or {\"name\": \"get_a\"}.\n</think>\n\nYes.",
		`<I could use <tool_call> here, or {"name": "get_a"}.>Yes.`},
	{"Qwen3: the reasoning ends in a marker", "hermes", "qwen3", "", "<think>\nHm <tool_call>\n</think>\nYes.", `<Hm <tool_call>>Yes.`},
	{"Qwen3.5: a call inside the reasoning", "qwen3_coder", "qwen3", "<think>\n", "Hm\n<tool_call>\n<function=get_a>\n<parameter=b>\n1\n</parameter>\n</function>\n</tool_call>",
		`<Hm> get_a({"b": 1})`},
	{"DeepSeek-V3.1: a call inside the reasoning", "deepseek_v31", "deepseek_r1", "<think>", "Hm<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + object +
		"<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "<Hm>" + weather},
	{"Mistral: a call inside the reasoning", "mistral", "qwen3", "<think>", "Hm[TOOL_CALLS]get_weather[ARGS]" + object, "<Hm>" + weather},
	{"Nemotron: a call inside the reasoning", "nemotron_json", "qwen3", "<think>", `Hm<TOOLCALL>[{"name": "get_a", "arguments": {}}]</TOOLCALL>`, "<Hm> get_a({})"},
	{"Llama: JSON inside the reasoning is no call", "llama3_json", "qwen3", "<think>", "{\"name\": \"get_a\", \"parameters\": {}}\n</think>\nYes.",
		`<{"name": "get_a", "parameters": {}}>Yes.`},
	{"JSON inside the reasoning is no call", "json", "qwen3", "<think>", "```json\n{\"name\": \"get_a\", \"arguments\": {}}\n```\n</think>\nYes.",
		"<```json\n{\"name\": \"get_a\", \"arguments\": {}}\n```>Yes."},
	{"SmolLM3", "hermes", "qwen3", "", "<think>\nHm.\n</think>\n<tool_call>{\"name\": \"get_a\", \"arguments\": {\"b\": 1}}</tool_call>", `<Hm.> get_a({"b": 1})`},
	{"DeepSeek-R1: without a marker", "", "deepseek_r1", "<｜Assistant｜>", "Hm\n</think>\n\nYes.", "<Hm>Yes."},
	{"DeepSeek-R1: with a marker", "", "deepseek_r1", "<｜Assistant｜><think>\n", "<think>\nHm</think>Yes.", "<Hm>Yes."},
	{"DeepSeek-V3.1: thinking is off", "", "deepseek_r1", "<｜Assistant｜></think>", "Yes.", "Yes."},
	{"Llama: an object", "llama3_json", "", "", `{"name": "get_weather", "parameters": ` + object + `}`, weather},
	{"Llama: the marker", "llama3_json", "", "", `<|python_tag|>{"name": "get_weather", "parameters": ` + object + `}`, weather},
	{"Llama: the type first", "llama3_json", "", "", `{"type": "function", "name": "get_a", "parameters": {}}`, " get_a({})"},
	{"Llama: the type and the function", "llama3_json", "", "", `{"type": "function", "function": {"name": "get_a", "parameters": {}}}`, " get_a({})"},
	{"Llama: two objects", "llama3_json", "", "", `<|python_tag|>{"name": "get_weather", "parameters": ` + object + `}; {"name": "get_weather", "parameters": ` + object2 + "}", weather + weather2},
	{"Llama: an unknown member after the arguments", "llama3_json", "", "", `{"name": "get_a", "parameters": {}, "x": 1}`, ` get_a({})x": 1}`},
	{"Llama: text before", "llama3_json", "", "", "Sure:\n{\"name\": \"get_a\", \"parameters\": {}}", "Sure: get_a({})"},
	{"Llama: JSON that is no call", "llama3_json", "", "", `{"name": "Bob", "age": 3}`, `{"name": "Bob", "age": 3}`},
	{"Llama: an object of data", "llama3_json", "", "", "{\"city\": \"Rom\"}\n[1, 2]", "{\"city\": \"Rom\"}\n[1, 2]"},
	{"Llama: code", "llama3_json", "", "", "<|python_tag|>print(1)", "<|python_tag|>print(1)"},
	{"Mistral: a list", "mistral", "", "", `[TOOL_CALLS][{"name": "get_weather", "arguments": ` + object + `}, {"name": "get_weather", "arguments": ` + object2 + `, "id": "abcdefghi"}]`, weather + weather2},
	{"Mistral: names", "mistral", "", "", `Hm.[TOOL_CALLS]get_weather[ARGS]` + object + `[TOOL_CALLS]get_weather[CALL_ID]abcDEF012[ARGS]` + object2, "Hm." + weather + weather2},
	{"Mistral: a name without a marker", "mistral", "", "", `[TOOL_CALLS]get_weather` + object, weather},
	{"Mistral: no call", "mistral", "", "", `[TOOL_CALLS] ?!{`, `[TOOL_CALLS] ?!{`},
	{"Qwen3-Coder", "qwen3_coder", "", "", "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nKöln \"am\"\nRhein\\\n</parameter>\n" +
		"<parameter=days>\n[1, {\"a\": \"b\"}]\n</parameter>\n<parameter=note>\nNone\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n" +
		"<function=get_a>\n</function>\n</tool_call>", `I look. get_weather({"city": "Köln \"am\"\nRhein\\", "days": [1, {"a": "b"}], "note": null}) get_a({})`},
	{"Qwen3-Coder: values of other types", "qwen3_coder", "", "", "<tool_call>\n<function=get_a>\n<parameter=x>\nTrue\n</parameter>\n<parameter=y>\n" +
		"12 Rom\n</parameter>\n<parameter=city>\nnull\n</parameter>\n<parameter=note>\nnothing\t\n</parameter>\n</function>\n</tool_call>",
		` get_a({"x": true, "y": "12 Rom", "city": "null", "note": "nothing\u0009"})`},
	{"Qwen3-Coder: without line breaks", "qwen3_coder", "", "", "<function=get_a><parameter=city>a < </parameter</parameter><parameter=x></parameter><parameter=note>7</parameter></function>",
		` get_a({"city": "a < </parameter", "x": "", "note": "7"})`},
	{"Qwen3-Coder: empty lines", "qwen3_coder", "", "", "<function=get_a><parameter=city>\n\n\n</parameter></function>\nDone.", ` get_a({"city": "\n"})Done.`},
	{"Qwen3-Coder: without an end", "qwen3_coder", "", "", "<tool_call>\n<function=get_a>\n<parameter=city>\nRom", ` get_a({"city": "Rom"})`},
	{"Qwen3-Coder: other text", "qwen3_coder", "", "", "<tool_call>\n<function=get_a>\n<parameter=x>\n1\n</parameter>\n!", ` get_a({"x": 1})!`},
	{"Qwen3-Coder: no call", "qwen3_coder", "", "", "<tool_call> and <function=?!> are marks", "<tool_call> and <function=?!> are marks"},
	{"GLM-4.5", "glm45", "glm45", "", "<think>Hm</think>\nI look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n" +
		"<arg_key>days</arg_key>\n<arg_value>[1, 2]</arg_value>\n</tool_call>\n<tool_call>get_a\n</tool_call>",
		`<Hm>I look. get_weather({"city": "Köln", "days": [1, 2]}) get_a({})`},
	{"GLM-4.7: without line breaks", "glm45", "", "", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a <b> </arg></arg_value>" +
		"<arg_key>x</arg_key><arg_value>true</arg_value></tool_call>Done.", ` get_weather({"city": "a <b> </arg>", "x": true})Done.`},
	{"GLM-4.5: a key without a value", "glm45", "", "", "<tool_call>get_a\n<arg_key>city</arg_key>!</tool_call>", ` get_a({"city": ""})!</tool_call>`},
	{"GLM-4.5: no tag after a value", "glm45", "", "", "<tool_call>get_a\n<arg_key>city</arg_key>\n<arg_value>x</arg_value> </tool> <tool_call>get_a\n</tool_call>",
		` get_a({"city": "x"})</tool> get_a({})`},
	{"GLM-4.5: no tag after a key", "glm45", "", "", "<tool_call>get_a\n<arg_key>city</arg_key>\n<arg_key>x", ` get_a({"city": ""})<arg_key>x`},
	{"GLM-4.5: no call", "glm45", "", "", "<tool_call> and some <arg_key> are marks", "<tool_call> and some <arg_key> are marks"},
	{"Kimi K2", "kimi_k2", "kimi_k2", "<think>", "Hm</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" +
		object + "<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>" + object2 +
		"<|tool_call_end|><|tool_calls_section_end|>", "<Hm>I look." + weather + weather2},
	{"Granite 3.0", "granite", "", "", `<|tool_call|>[{"name": "get_weather", "arguments": ` + object + `}]`, weather},
	{"Granite 3.1", "granite", "", "", `<tool_call>[{"name": "get_weather", "arguments": ` + object + `},{"name": "get_weather", "arguments": ` + object2 + `}]`, weather + weather2},
	{"Phi-4-mini: functools", "phi4_mini_json", "", "", `functools[{"name": "get_weather", "arguments": ` + object + `}]`, weather},
	{"Phi-4-mini: markers", "phi4_mini_json", "", "", `<|tool_call|>[{"name": "get_weather", "arguments": ` + object + `}]<|/tool_call|>`, weather},
	{"Phi-4-mini: text", "phi4_mini_json", "", "", `The functools module`, `The functools module`},
	{"DeepSeek-V3.1", "deepseek_v31", "deepseek_r1", "<think>", "Hm</think>I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + object +
		"<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + object2 + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "<Hm>I look." + weather + weather2},
	{"DeepSeek-V3", "deepseek_v3", "", "", "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" + object +
		"\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" + object2 + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
		"I look." + weather + weather2},
	{"Nemotron", "nemotron_json", "", "", `<TOOLCALL>[{"name": "get_weather", "arguments": ` + object + `}]</TOOLCALL>`, weather},
	{"JSON: a list", "json", "", "", `[{"name": "get_weather", "parameters": ` + object + `}, {"name": "get_weather", "parameters": ` + object2 + `}]`, weather + weather2},
	{"JSON: a fence", "json", "", "", "I look:\n```json\n{\"name\": \"get_weather\", \"arguments\": " + object + "}\n```\n", "I look:" + weather},
	{"JSON: another fence", "json", "", "", "```json\n{\"a\": [1]}\n```", "```json\n{\"a\": [1]}\n```"},
	{"JSON: a list of data", "json", "", "", `[{"name": "Bob"}]`, `[{"name": "Bob"}]`},
	{"JSON: OpenAI's form", "json", "", "", `[{"id": "call_1", "type": "function", "function": {"name": "get_a", "arguments": "{\"b\": 1}"}}]`, ` get_a({"b": 1})`},
	{"gpt-oss: reasoning and text", "openai", "openai_gptoss", "", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes <b>.", "<Hm.>Yes <b>."},
	{"gpt-oss: a call", "openai", "openai_gptoss", "", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" + object, "<Hm.>" + weather},
	{"gpt-oss: the name first", "openai", "openai_gptoss", "", " to=functions.get_weather<|channel|>commentary json<|message|>" + object + "<|call|>", weather},
	{"gpt-oss: a preamble and two calls", "openai", "openai_gptoss", "", "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather<|message|>" + object +
		"<|call|><|start|>assistant<|channel|>commentary to=functions.get_weather<|message|>" + object2, "I look." + weather + weather2},
	{"gpt-oss: no markers", "openai", "openai_gptoss", "", "Yes <|end", "Yes <|end"},
	{"gpt-oss: a header that is cut", "openai", "openai_gptoss", "", "<|channel|>ana", ""},
}

// options returns the options of the texts above.
func options(prompt string) toolparser.Options {
	return toolparser.Options{Known: isTool, Prompt: prompt, ParameterKind: func(_, parameter string) toolparser.ParameterKind {
		return map[string]toolparser.ParameterKind{"city": toolparser.TextParameter, "note": toolparser.TextOrNullParameter}[parameter]
	}}
}

func parse(f *toolparser.Format, prompt string, pieces ...string) string {
	p := f.Parser(options(prompt))
	var all []toolparser.Event
	for _, piece := range pieces {
		all = append(all, p.Feed(piece)...)
	}
	return show(append(all, p.Close()...))
}

// TestCutsDoNotMatter cuts each text at every byte, and into single bytes.
func TestCutsDoNotMatter(t *testing.T) {
	for _, test := range texts {
		t.Run(test.name, func(t *testing.T) {
			f := format(t, test.tools, test.reasoning)
			require.Equal(t, test.want, parse(f, test.prompt, test.text))
			for i := range len(test.text) {
				require.Equal(t, test.want, parse(f, test.prompt, test.text[:i], test.text[i:]), "%q", test.text[:i])
			}
			var bytes []string
			for i := range len(test.text) {
				bytes = append(bytes, test.text[i:i+1])
			}
			require.Equal(t, test.want, parse(f, test.prompt, bytes...))
		})
	}
}

// TestNothingShownIsTakenBack gives a parser the beginning of an answer, of every length. The events of the beginning
// must be the first events of the whole answer. In particular, no part of a marker is reported as text.
func TestNothingShownIsTakenBack(t *testing.T) {
	for _, test := range texts {
		f := format(t, test.tools, test.reasoning)
		for i := range len(test.text) {
			p := f.Parser(options(test.prompt))
			shown := strings.TrimSuffix(show(p.Feed(test.text[:i])), ">")
			require.True(t, strings.HasPrefix(test.want, shown), "%s: %q shows %q", test.name, test.text[:i], shown)
		}
	}
}

// cut returns what an answer shows that max_tokens ends after text.
func cut(f *toolparser.Format, prompt, text string) string {
	p := f.Parser(options(prompt))
	return show(append(append([]toolparser.Event(nil), p.Feed(text)...), p.Cut()...))
}

// Ensure that the events of an answer that max_tokens cuts off are the first events of the whole answer. No part of a
// marker or of a call is reported as content, but a text that cannot become a call is. A call has only the arguments
// that the model wrote.
func TestACutAnswerShowsABeginningOfTheAnswer(t *testing.T) {
	for _, test := range texts {
		f := format(t, test.tools, test.reasoning)
		for i := range len(test.text) {
			shown := strings.TrimRight(strings.TrimRight(cut(f, test.prompt, test.text[:i]), ">)"), " \n")
			require.True(t, strings.HasPrefix(test.want, shown), "%s: %q shows %q", test.name, test.text[:i], shown)
		}
	}
	for _, test := range []struct{ name, tools, reasoning, text, want string }{
		{"text", "hermes", "", "Yes \n", "Yes \n"},
		{"a part of a marker", "hermes", "", "Yes <tool_c", "Yes"},
		{"a marker", "deepseek_v31", "", "Yes<｜tool▁calls▁begin｜>", "Yes"},
		{"a name", "hermes", "", "<tool_call>\n{\"name\": \"get_", ""},
		{"no arguments", "mistral", "", "[TOOL_CALLS]get_weather[ARGS]", " get_weather()"},
		{"no arguments of gpt-oss", "openai", "", "<|channel|>commentary to=functions.get_a<|message|>", " get_a()"},
		{"a header of gpt-oss", "openai", "", " to=functions.get", ""},
		{"a second call", "mistral", "", `[TOOL_CALLS][{"name": "get_a", "arguments": {}}, {"name": "get`, " get_a({})"},
		{"an object that may be a call", "llama3_json", "", `{"name": "get_`, ""},
		{"an object that is no call", "llama3_json", "", `{"cit`, `{"cit`},
		{"a list in a fence", "json", "", "```json\n{\"a\": [1", "```json\n{\"a\": [1"},
		{"a marker of reasoning", "", "qwen3", "<thin", ""},
		{"the end of reasoning", "", "qwen3", "<think>\nHm\n</thi", "<Hm>"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, cut(format(t, test.tools, test.reasoning), "", test.text))
		})
	}
}

// Ensure that CallIsCut reports whether an answer ended inside a call.
func TestWhetherACallIsCut(t *testing.T) {
	for _, test := range []struct {
		name, tools, text string
		want              bool
	}{
		{"text", "hermes", "Yes <", false},
		{"a name", "hermes", "<tool_call>\n{\"na", true},
		{"arguments", "hermes", `<tool_call>{"name": "f", "arguments": {"a": 1`, true},
		{"before the end", "hermes", `<tool_call>{"name": "f", "arguments": {"a": 1}`, false},
		{"a second call", "hermes", `<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>{"`, true},
		{"text after a call", "hermes", `<tool_call>{"name": "f", "arguments": {}}</tool_call> Yes`, false},
		{"a list", "mistral", `[TOOL_CALLS][{"name": "f", "arguments": {}}, `, false},
		{"a second call of a list", "mistral", `[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name`, true},
		{"a tag", "qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n1", true},
		{"arguments of gpt-oss", "openai", `<|channel|>commentary to=functions.f<|message|>{"a": 1`, true},
		{"whole arguments of gpt-oss", "openai", `<|channel|>commentary to=functions.f<|message|>{"a": 1}`, false},
		{"a header of gpt-oss", "openai", "<|channel|>commentary to=functions.f", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := format(t, test.tools, "").Parser(toolparser.Options{Known: func(string) bool { return true }})
			p.Feed(test.text)
			p.Cut()
			require.Equal(t, test.want, p.CallIsCut())
		})
	}
}

func TestIDs(t *testing.T) {
	for _, test := range []struct{ tools, text, pattern string }{
		{"hermes", `<tool_call>{"name": "f"}</tool_call>`, `^call_[a-zA-Z0-9]{24}$`},
		{"mistral", `[TOOL_CALLS][{"name": "f"}]`, `^[a-zA-Z0-9]{9}$`},
		{"mistral", `[TOOL_CALLS]f[CALL_ID]abcDEF012[ARGS]{}`, `^abcDEF012$`},
		{"mistral", `[TOOL_CALLS]f[CALL_ID]other[ARGS]{}`, `^[a-zA-Z0-9]{9}$`},
	} {
		seen := map[string]bool{}
		for range 2 {
			p := format(t, test.tools, "").Parser(toolparser.Options{Known: isTool})
			id := p.Feed(test.text)[0].ID
			require.Regexp(t, test.pattern, id)
			require.False(t, seen[id] && !strings.Contains(test.text, id))
			seen[id] = true
		}
	}
}

// Ensure that JSON that is content is shown before it ends.
func TestJSONThatIsNoCallIsShownEarly(t *testing.T) {
	p := format(t, "json", "").Parser(toolparser.Options{Known: isTool})
	const begin = `{"name": "get_a", "city"`
	require.Equal(t, begin, show(p.Feed(begin)))
}

func TestWithoutToolsCallsAreContent(t *testing.T) {
	const text = `<tool_call>{"name": "f"}</tool_call>`
	p := format(t, "hermes", "").Parser(toolparser.Options{})
	require.Equal(t, text, show(append(p.Feed(text), p.Close()...)))
}

// Ensure that Choose finds the parsers of these families. Each template contains the texts by which Choose recognizes
// the chat templates of the family.
func TestATemplateChoosesTheParsersOfItsFamily(t *testing.T) {
	const qwen = "<tools>{{ tool | tojson }}</tools> return a json object <tool_call>{{ tool_call.arguments | tojson }}</tool_call>"
	for _, test := range []struct{ family, template, tools, reasoning string }{
		{"Qwen2.5, Hermes", qwen, "hermes", ""},
		{"Qwen3", qwen + "{{ content.split('</think>')[-1] }}<think>", "hermes", "qwen3"},
		{"SmolLM3", "{% if xml_tools %}" + qwen + "{% elif python_tools %}<code>{% endif %}<think>\n\n</think>", "hermes", "qwen3"},
		{"Qwen3-Coder", "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>{{ tool_call.arguments|items }}", "qwen3_coder", ""},
		{"Qwen3.5", "<think><tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>{{ tool_call.arguments|items }}",
			"qwen3_coder", "qwen3"},
		{"Llama 3.1, 3.3", "<|start_header_id|>{% if builtin_tools %}<|python_tag|>{% endif %}'\"parameters\": '", "llama3_json", ""},
		{"Llama 3.2", "<|start_header_id|>'{\"name\": \"' + tool_call.name + '\", \"parameters\": '", "llama3_json", ""},
		{"Mistral, lists", "[AVAILABLE_TOOLS][TOOL_CALLS] [{{ tool_call.function|tojson }}, \"id\": ", "mistral", ""},
		{"Mistral, names", "[AVAILABLE_TOOLS][TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}", "mistral", ""},
		{"Granite 3", "<|start_of_role|>available_tools<|end_of_role|> <|tool_call|>", "granite", ""},
		{"Granite 4", "<|start_of_role|>" + qwen, "hermes", ""},
		{"Phi-4-mini", "<|system|>{{ message['content'] }}<|tool|>{{ message['tools'] }}<|/tool|>", "phi4_mini_json", ""},
		{"Phi-4-mini of vLLM", "functools[{\"name\": ", "phi4_mini_json", ""},
		{"gpt-oss", "<|start|>assistant<|channel|>analysis<|message|>", "openai", "openai_gptoss"},
		{"DeepSeek-R1", "<｜Assistant｜>{{ content.split('</think>')[-1] }}", "json", "deepseek_r1"},
		{"another", "<|user|>{{ content }}", "json", ""},
	} {
		t.Run(test.family, func(t *testing.T) {
			f := toolparser.Choose(test.template)
			require.Equal(t, test.tools, f.Tools.Name)
			reasoning := ""
			if f.Reasoning != nil {
				reasoning = f.Reasoning.Name
			}
			require.Equal(t, test.reasoning, reasoning)
		})
	}
}

func TestUnknownParsersAreRefused(t *testing.T) {
	_, err := toolparser.Tools("x", "")
	require.ErrorContains(t, err, `the tool parser "x" is not known; there are deepseek_v3, deepseek_v31, glm45, granite, hermes, json, `)
	_, err = toolparser.Thinking("x")
	require.ErrorContains(t, err, `the reasoning parser "x" is not known; there are deepseek_r1, `)
}
