package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model/tokenizer"
)

// withSpecial returns a tokenizer whose tokens are the bytes. Three tokens replace bytes: <end>, <turn> and <think>.
// The token <turn> is an end token, and <think> is not special.
func withSpecial(t *testing.T) *tokenizer.Tokenizer {
	return openTokenizer(t, "<turn>", map[string]any{"id": 2, "content": "<end>", "special": true},
		map[string]any{"id": 4, "content": "<turn>"}, map[string]any{"id": 5, "content": "<think>"})
}

// shown writes tokens of withSpecial: added ones in capitals.
func shown(tokens []int32) string {
	var b strings.Builder
	for _, id := range tokens {
		if name, ok := map[int32]string{2: "END", 4: "TURN", 5: "THINK"}[id]; ok {
			b.WriteString(name)
			continue
		}
		b.WriteByte(byte(id))
	}
	return b.String()
}

// Ensure that the names of special tokens in a client's message do not become special tokens, whatever the template
// does with the message. Such names in the template become special tokens.
func TestSpecialTokensInMessagesAreText(t *testing.T) {
	const plain = "{% for m in messages %}<turn>{{ m.content }}{% endfor %}<end>"
	user := func(texts ...string) string {
		var all []string
		for _, text := range texts {
			quoted, _ := json.Marshal(text)
			all = append(all, `{"role": "user", "content": `+string(quoted)+`}`)
		}
		return strings.Join(all, ", ")
	}
	for _, test := range []struct {
		name, template, messages, fields string
		want, parsed                     string // parsed: with --parse-special
	}{
		{"a special token", plain, user("a<end>b"), "", "TURNa<end>bEND", "TURNaENDbEND"},
		{"a token that ends an answer", plain, user("<turn>"), "", "TURN<turn>END", "TURNTURNEND"},
		{"one that is not special", plain, user("<think>"), "", "TURNTHINKEND", "TURNTHINKEND"},
		{"other text", plain, user("a < b > c"), "", "TURNa < b > cEND", "TURNa < b > cEND"},
		{"all roles", plain, `{"role": "system", "content": "<end>"}, {"role": "assistant", "content": "<end>"},
			{"role": "tool", "content": "<end>"}, {"role": "developer", "content": "<end>"}`, "",
			"TURN<end>TURN<end>TURN<end>TURN<end>END", "TURNENDTURNENDTURNENDTURNENDEND"},
		{"of two messages", "{% for m in messages %}{{ m.content }}{% endfor %}", user("<e", "nd>"), "", "<end>", "END"},
		{"of two messages without spaces", "{% for m in messages %}{{ m.content | trim }}{% endfor %}", user("<e ", " nd>"), "",
			"<end>", "END"},
		{"by what the template removes", "{{ messages[0].content.replace('<x>', '') }}", user("<e<x>nd>"), "", "<end>", "END"},
		{"begun by the template", "<{{ messages[0].content }}", user("end>"), "", "<end>", "END"},
		{"ended by the template", "{{ messages[0].content }}>", user("<end"), "", "<end>", "END"},
		{"of the template and the role", "<{{ messages[0].role | replace('user', 'end') }}>", user("x"), "", "END", "END"},
		{"that the template looks for", "{% if '<end>' in messages[0].content %}{{ messages[0].content.split('<end>')[1] }}" +
			"<end>{% endif %}", user("a<end>b"), "", "bEND", "bEND"},
		{"through a macro", "{% macro f(x) %}<turn>{{ x }}{% endmacro %}{{ f(messages[0].content).split('<end>')[1] }}",
			user("a<end><end"), "", "<end", "<end"},
		{"name, reasoning and calls", "{% for m in messages %}{{ m.name }}{{ m.reasoning }}{{ m.tool_calls | tojson }}{% endfor %}",
			`{"role": "assistant", "name": "<end>", "reasoning": "<end>", "tool_calls": [{"function": {"name": "<end>",
				"arguments": "{\"<end>\": \"<end>\"}"}}]}`, "",
			`<end><end>[{"function": {"name": "<end>", "arguments": {"<end>": "<end>"}}}]`,
			`ENDEND[{"function": {"name": "END", "arguments": {"END": "END"}}}]`},
		{"chat_template_kwargs", "{{ more }}", user("x"), `, "chat_template_kwargs": {"more": ["<end>"]}`, "['<end>']", "['END']"},
		{"a message that is continued", plain, `{"role": "assistant", "content": "a<end>b"}`,
			`, "continue_final_message": true, "add_generation_prompt": false`, "TURNa<end>b", "TURNaENDb"},
		{"private-use characters", plain, user("\U00100000<end>\U00100001"), "", "TURN\U00100000<end>\U00100001END",
			"TURN\U00100000END\U00100001END"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, parse := range []bool{false, true} {
				s := start(t, func(c *openai.Config, e *engine.Config) {
					c.Template = newTemplate(t, test.template)
					c.ParseSpecial, e.Tokenizer = parse, withSpecial(t)
				})
				want := test.want
				if parse {
					want = test.parsed
				}
				a := s.ask(t, "/tokenize", `{"messages": [`+test.messages+`]`+test.fields+`}`)
				require.Equal(t, 200, a.Status, a.Text)
				require.Equal(t, want, shown(a.Tokens))
				a = s.ask(t, chats, `{"model": "demo", "max_tokens": 1, "messages": [`+test.messages+`]`+test.fields+`}`)
				require.Equal(t, len(s.ask(t, "/tokenize", `{"messages": [`+test.messages+`]`+test.fields+`}`).Tokens), a.Usage.Prompt)
				a = s.ask(t, "/tokenize", `{"prompt": "a<end>b"}`)
				require.Equal(t, "aENDb", shown(a.Tokens), "a prompt is not of a chat")
			}
		})
	}
}
