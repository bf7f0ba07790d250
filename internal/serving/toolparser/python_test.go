package toolparser_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/toolparser"
)

// Ensure that a list or an object that the model writes as Python shows it becomes JSON if the schema has a list or an
// object there, and stays a text otherwise.
func TestPythonBecomesJSONIfTheSchemaSaysSo(t *testing.T) {
	kind := toolparser.StructureParameter
	p := func(value string) string {
		parser := format(t, "qwen3_coder", "").Parser(toolparser.Options{Known: isTool,
			ParameterKind: func(string, string) toolparser.ParameterKind { return kind }})
		text := "<tool_call>\n<function=get_a>\n<parameter=b>\n" + value + "\n</parameter>\n</function>\n</tool_call>"
		got := show(append(parser.Feed(text), parser.Close()...))
		return strings.TrimSuffix(strings.TrimPrefix(got, ` get_a({"b": `), "})")
	}
	for value, want := range map[string]string{
		`['x', 'y']`:                       `["x", "y"]`,
		`["x", 1]`:                         `["x", 1]`,
		`{'a': True, 'b': None, 'c': 1.5}`: `{"a": true, "b": null, "c": 1.5}`,
		`[{'a': [False, -1e-5]}, (1, 2,)]`: `[{"a": [false, -1e-5]}, [1, 2]]`,
		`('a',)`:                           `["a"]`,
		`[]`:                               `[]`,
		`["it's", 'say "hi"']`:             `["it's", "say \"hi\""]`,
		`['it\'s', "say \"hi\"", '\n\\']`:  `["it's", "say \"hi\"", "\n\\"]`,
		`['Köln', '\u00f6', '\x41']`:       `["Köln", "ö", "A"]`,
		`null`:                             `null`,
		`None`:                             `null`,
		`x, y`:                             `"x, y"`,
		`['x'`:                             `"['x'"`,
		`['x`:                              `"['x"`,
		`[1,,2]`:                           `"[1,,2]"`,
		`[1],`:                             `"[1],"`,
		`{'x', 'y'}`:                       `"{'x', 'y'}"`,
		`[open('x')]`:                      `"[open('x')]"`,
		`{1: 2}`:                           `"{1: 2}"`,
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000): strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
	} {
		require.Equal(t, want, p(value), value)
	}
	kind = toolparser.JSONParameter
	require.Equal(t, `"['x', 'y']"`, p(`['x', 'y']`))
}
