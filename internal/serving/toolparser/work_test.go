package toolparser_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/toolparser"
	"llmmemory/internal/testkit/level"
)

// Limits of the work for each byte of an answer. Both are above what the markers of any family need, and far below what
// a parser needs that looks at all held text again for each byte.
const (
	maxLooked    = 300 // bytes that are looked at
	maxAllocated = 400 // bytes that are allocated
)

// repeated are texts that a client may force a model to repeat without end.
var repeated = []string{" ", "\n", "a", "{", "[", `"`, `\`, "<", ", ", "<think>", "</think>", "<|channel|>", "<tool_call>\n", "<parameter=a>", "```\n"}

// work parses an answer byte by byte. It returns how many bytes the parser has looked at, and how many were allocated.
func work(f *toolparser.Format, prompt, text string) (looked, allocated int) {
	p := f.Parser(options(prompt))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range len(text) {
		p.Feed(text[i : i+1])
	}
	p.Close()
	runtime.ReadMemStats(&after)
	return p.Looked(), int(after.TotalAlloc - before.TotalAlloc)
}

// Ensure that the work for an answer is proportional to its length, in every family, wherever an answer stands when it
// begins to repeat a text.
func TestWorkIsLinear(t *testing.T) {
	const n = 4000
	step := level.Pick(61, 3)
	for _, test := range texts {
		t.Run(test.name, func(t *testing.T) {
			f := format(t, test.tools, test.reasoning)
			for cut := 0; cut <= len(test.text); cut += step {
				for _, one := range repeated {
					looked, allocated := work(f, test.prompt, test.text[:cut]+strings.Repeat(one, n/len(one)))
					require.LessOrEqual(t, looked, maxLooked*(cut+n), "%q, then %q", test.text[:cut], one)
					require.LessOrEqual(t, allocated, maxAllocated*(cut+n), "%q, then %q", test.text[:cut], one)
				}
			}
		})
	}
}

// Ensure that a long name, key or value is not read again for each byte after it.
func TestWorkAfterLongParts(t *testing.T) {
	const n = 2000
	long := strings.Repeat("k", n)
	for name, text := range map[string]string{
		"key and value":    `<tool_call>{"` + long + `": "` + long,
		"key and number":   `<tool_call>{"` + long + `": ` + strings.Repeat("1", n),
		"name":             `<tool_call>{"name": "` + long + `", "arguments": {"a": "` + long,
		"arguments first":  `<tool_call>{"arguments": {"a": "` + long + `"}, "name": "` + long,
		"members":          `<tool_call>{"arguments": {"a": "` + long + `"}` + strings.Repeat(`, "b": 1`, n/8),
		"many names":       `<tool_call>{` + strings.Repeat(`"name": "", `, n/8),
		"nested functions": `<tool_call>{` + strings.Repeat(`"function": {`, n/8),
		"many calls":       strings.Repeat(`<tool_call>{"name": "get_a"}</tool_call>`, n/20),
		"many beginnings":  strings.Repeat(`<tool_call>`, n/8) + strings.Repeat(`<tool_call>{"na`, n/8),
	} {
		looked, allocated := work(format(t, "hermes", "qwen3"), "", text)
		require.LessOrEqual(t, looked, maxLooked*len(text), name)
		require.LessOrEqual(t, allocated, maxAllocated*len(text), name)
	}
}
