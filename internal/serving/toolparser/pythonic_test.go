package toolparser_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/toolparser"
)

const lfm2Begin, lfm2End = "<|tool_call_start|>", "<|tool_call_end|>"

func init() {
	texts = append(texts, []struct{ name, tools, reasoning, prompt, text, want string }{
		{"LFM2: one call", "lfm2", "", "", lfm2Begin + "[get_weather(city='Köln', unit='c')]" + lfm2End, weather},
		{"LFM2: two calls and text", "lfm2", "", "", "I look. " + lfm2Begin + "[get_weather(city=\"Köln\", unit = 'c'), get_a()]" + lfm2End + "Done.",
			"I look." + weather + " get_a({})Done."},
		{"LFM2: a call without a list", "lfm2", "", "", lfm2Begin + "get_a(b='x')" + lfm2End + "Yes", ` get_a({"b": "x"})Yes`},
		{"LFM2: JSON", "lfm2", "", "", lfm2Begin + `[{"name": "get_weather", "arguments": ` + object + `}]` + lfm2End, weather},
		{"LFM2: types", "lfm2", "", "", lfm2Begin + "[get_a(a=1, b=-2.5e3, c=True, d=None, e=[1, 'x', {'y': False}], f={\"g\": (1, 2)}, h=07, " +
			"i=.5, j=1_000, k=false, l=x y)]" + lfm2End, ` get_a({"a": 1, "b": -2.5e3, "c": true, "d": null, "e": [1, "x", {"y": false}], ` +
			`"f": {"g": [1, 2]}, "h": 7, "i": 0.5, "j": 1000, "k": false, "l": "x y"})`},
		{"LFM2: brackets and quotes in values", "lfm2", "", "", lfm2Begin + `[get_a(a=[')]', "it's", '\'('], b={'x': ','}), get_b(c='')]` + lfm2End,
			` get_a({"a": [")]", "it's", "'("], "b": {"x": ","}}) get_b({"c": ""})`},
		{"LFM2: escapes", "lfm2", "", "", lfm2Begin + `[get_a(a='\'\"\\\n\t\x41\u00f6\U0001F600\U0011FFFF\0\d\x4', b="\ud83d\ude00\` + "\n" + `.")]` + lfm2End,
			` get_a({"a": "'\"\\\n\t\u0041\u00f6😀\\U0011FFFF\u0000\\d\\x4", "b": "\ud83d\ude00."})`},
		{"LFM2: quotes that are not escaped", "lfm2", "", "", lfm2Begin + "[get_a(a='it's \"so\", isn't it', b='f('x') g'), get_b(c='print('x')'\n)]" + lfm2End,
			` get_a({"a": "it's \"so\", isn't it", "b": "f('x') g"}) get_b({"c": "print('x')"})`},
		{"LFM2: three quotes and line breaks", "lfm2", "", "", lfm2Begin + "[get_a(a='''x\n''y''', b=\"\"\"z\"\"\", c='1\n2', )]" + lfm2End,
			` get_a({"a": "x\n''y", "b": "z", "c": "1\n2"})`},
		{"LFM2: a comma at the end", "lfm2", "", "", lfm2Begin + "[get_a(), ]" + lfm2End, " get_a({})"},
		{"LFM2: values without names", "lfm2", "", "", lfm2Begin + "[get_a('x', 1, [2], a=3)]" + lfm2End, ` get_a({"a": 3})`},
		{"LFM2: a value that is missing", "lfm2", "", "", lfm2Begin + "[get_a(a=)]" + lfm2End, ` get_a({"a": ""})`},
		{"LFM2: text after a call in a list", "lfm2", "", "", lfm2Begin + "[get_a(b='x'), and more]", ` get_a({"b": "x"})and more]`},
		{"Llama 4: text after a call in a list", "pythonic", "", "", "[get_a(b=1), and so on]\n[get_a()]", ` get_a({"b": 1})and so on] get_a({})`},
		{"Llama 4: an unknown function in a list of JSON", "pythonic", "", "", `[{"name": "get_a", "parameters": {}}, {"name": "foo", "parameters": {}}]`,
			` get_a({}){"name": "foo", "parameters": {}}]`},
		{"LFM2: a name of an argument that is too long", "lfm2", "", "", lfm2Begin + "[get_a(" + strings.Repeat("x", 513) + "='y', z=1)]", ` get_a({"z": 1})`},
		{"LFM2: no call", "lfm2", "", "", "Marks are " + lfm2Begin + " and [a](b).", "Marks are " + lfm2Begin + " and [a](b)."},
		{"LFM2: a call that is not ended", "lfm2", "", "", lfm2Begin + "[get_a(a='x', b='y", ` get_a({"a": "x", "b": "y"})`},
		{"LFM2: reasoning", "lfm2", "qwen3", "<think>", "Hm</think>" + lfm2Begin + "[get_a()]" + lfm2End, "<Hm> get_a({})"},
		{"Llama 4: two calls", "pythonic", "", "", `[get_weather(city='Köln', unit='c'), get_weather(city="Rom {\"}\\")]`, weather + weather2},
		{"Llama 4: markers", "pythonic", "", "", "<|python_start|>[get_a(b=1)]<|python_end|>", ` get_a({"b": 1})`},
		{"Llama 4: code", "pythonic", "", "", "<|python_start|>print(1)<|python_end|>", "<|python_start|>print(1)<|python_end|>"},
		{"Llama 4: a call after text", "pythonic", "", "", "I look.\n[get_a()]", "I look. get_a({})"},
		{"Llama 4: no call inside a line", "pythonic", "", "", "See [get_a()].", "See [get_a()]."},
		{"Llama 4: a list and a link", "pythonic", "", "", "[1, 2]\n[get_a](x)\n[foo(x=1)]", "[1, 2]\n[get_a](x)\n[foo(x=1)]"},
		{"Llama 4: JSON", "pythonic", "", "", `{"name": "get_weather", "parameters": ` + object + `}`, weather},
	}...)
}

// Ensure that a text of an argument is shown while it is written.
func TestTextsOfPythonicCallsAreShownAsTheyCome(t *testing.T) {
	p := format(t, "lfm2", "").Parser(options(""))
	require.Equal(t, ` get_a({"b": "some te`, show(p.Feed(lfm2Begin+"[get_a(b='some te")))
	require.Equal(t, "xt", show(p.Feed("xt'")))
	require.Equal(t, `", "c": `, show(p.Feed(", c=")))
}

// Ensure that the arguments of a call in Python's syntax are JSON, whatever the model writes between the parentheses.
func TestArgumentsOfPythonicCallsAreJSON(t *testing.T) {
	parts := []string{"'", `"`, "'''", `\`, "a=", ", ", "(", ")", "[", "]", "{", "}", "x", "1", " ", "\n", ":", "=", "é", `\u`, `\x4`, `\U0011FFFF`, "<"}
	for _, first := range parts {
		for _, second := range parts {
			for _, third := range parts {
				text := lfm2Begin + "[get_a(" + first + second + third
				for _, end := range []string{"", "')]", ")]" + lfm2End} {
					p := format(t, "lfm2", "").Parser(options(""))
					var arguments strings.Builder
					for _, e := range append(slices.Clone(p.Feed(text+end)), p.Close()...) {
						if e.Kind == toolparser.Arguments {
							arguments.WriteString(e.Text)
						}
					}
					require.True(t, json.Valid([]byte(arguments.String())), "%q: %s", text+end, arguments.String())
				}
			}
		}
	}
}

// Ensure that Choose finds the parsers of calls in Python's syntax, and that they have vLLM's names.
func TestTemplatesOfPythonicCalls(t *testing.T) {
	for template, want := range map[string]string{
		"<|tool_list_start|>[{{ tool }}]<|tool_list_end|><|tool_response_start|>":           "lfm2",
		"List of tools: {{ tools | tojson }}<|tool_call_start|>[{{ name }}(":                "lfm2",
		"<|header_start|>Use exact format: [func_name1(param1=value1, param2=value2), func": "pythonic",
		"<|start_header_id|>[func_name1(params_name1=params_value1...)], \"parameters\"":    "pythonic",
	} {
		f := toolparser.Choose(template)
		require.Equal(t, want, f.Tools.Name)
		require.Empty(t, f.Tools.Writing.Marker, "calls in Python's syntax are allowed after the marker")
	}
	p, err := toolparser.Tools("llama4_pythonic", "")
	require.NoError(t, err)
	require.Equal(t, "pythonic", p.Name)
}

// Ensure that quotes that do not end a text are not looked at again for each byte after them.
func TestWorkForQuotesIsLinear(t *testing.T) {
	const n = 4000
	for _, one := range []string{"'", "' ", "', a", "')", "'''", `\`, `\u00`, "(", "["} {
		for _, begin := range []string{"[get_a(b=", "[get_a(b='", "[get_a(b='x'", "[get_a(b='''", "[get_a("} {
			looked, allocated := work(format(t, "lfm2", ""), "", lfm2Begin+begin+strings.Repeat(one, n/len(one)))
			require.LessOrEqual(t, looked, maxLooked*n, "%q, then %q", begin, one)
			require.LessOrEqual(t, allocated, maxAllocated*n, "%q, then %q", begin, one)
		}
	}
}
