package openai

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/structured"
	"llmmemory/internal/serving/toolparser"
)

// specials are the names of the special tokens of byteVocabulary. Tokens 0 to 255 of this vocabulary are the bytes, and
// token 256+i is specials[i]. The first special token is an end token.
var specials = []string{"<eos>", "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>", "[TOOL_CALLS]", "[ARGS]",
	"<|python_tag|>", "<|tool_call|>", "<|/tool_call|>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
	"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}

const eos = 256

func byteVocabulary(t testing.TB) *structured.Vocabulary {
	tokens, names := make([][]byte, eos+len(specials)), map[int]string{}
	for i := range eos {
		tokens[i] = []byte{byte(i)}
	}
	for i, name := range specials {
		names[eos+i] = name
	}
	v, err := structured.NewVocabulary(tokens, names, []int{eos})
	require.NoError(t, err)
	return v
}

func encode(text string) (ids []int) {
next:
	for text != "" {
		for i, name := range specials {
			if strings.HasPrefix(text, name) {
				ids, text = append(ids, eos+i), text[len(name):]
				continue next
			}
		}
		ids, text = append(ids, int(text[0])), text[1:]
	}
	return ids
}

func decode(ids []int) string {
	var text strings.Builder
	for _, id := range ids {
		if id < eos {
			text.WriteByte(byte(id))
		} else {
			text.WriteString(specials[id-eos])
		}
	}
	return text.String()
}

// twoTools may be called in the tests below.
var twoTools = []tool{
	{name: "get_weather", parameters: json.RawMessage(`{"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}, "days":
		{"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city"], "additionalProperties": false,
		"$defs": {"city": {"enum": ["Rom", "Köln"]}}}`)},
	{name: "get_time", parameters: json.RawMessage(`{"type": "object", "properties": {}, "additionalProperties": false}`)},
}

// fits requires arguments that the schemas of twoTools allow.
func fits(t testing.TB, c call) {
	t.Helper()
	if c.name == "get_time" {
		require.JSONEq(t, "{}", c.arguments)
		return
	}
	require.Equal(t, "get_weather", c.name)
	var arguments struct {
		City string
		Days *int
	}
	d := json.NewDecoder(strings.NewReader(c.arguments))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&arguments), c.arguments)
	require.Contains(t, []string{"Rom", "Köln"}, arguments.City)
	require.True(t, arguments.Days == nil || *arguments.Days >= 1 && *arguments.Days <= 9)
}

// says parses a whole answer.
func says(s *shape, prompt, text string) spoken {
	p := s.format.Parser(toolparser.Options{Prompt: prompt, Known: func(name string) bool { return strings.HasPrefix(name, "get_") }})
	one := part{events: append([]toolparser.Event(nil), p.Feed(text)...)}
	one.events = append(one.events, p.Close()...)
	return one.spoken()
}

func formats(t testing.TB) (all []toolparser.Format) {
	for _, hint := range []string{"<|channel|><|message|>", "[TOOL_CALLS][ARGS]", "[TOOL_CALLS]", "<|tool_call|><|start_of_role|>", "functools[",
		"<|tool|><|/tool|>", "<tool_call>arguments", "<|python_tag|>", ""} {
		all = append(all, toolparser.Choose(hint))
	}
	tools, err := toolparser.Tools("deepseek_v31", "")
	require.NoError(t, err)
	return append(all, toolparser.Format{Tools: tools})
}

// Ensure that the content of a random answer of gpt-oss is a text of the form and nothing else, even if the answer may
// also call tools.
func TestContentIsOnlyTheForm(t *testing.T) {
	v, random := byteVocabulary(t), rand.New(rand.NewPCG(3, 4))
	gptOSS := toolparser.Choose("<|channel|><|message|>")
	for _, s := range []*shape{
		{format: gptOSS, content: &structured.Form{Regex: "[0-9]+"}},
		{format: gptOSS, content: &structured.Form{Regex: "[0-9]+"}, tools: twoTools, mode: auto},
		{format: gptOSS, content: &structured.Form{Regex: "[0-9]+"}, tools: twoTools, mode: required},
	} {
		c, err := structured.Compile(v, *s.form(&prompt{}))
		require.NoError(t, err)
		for range 40 {
			text := wander(t, c, random)
			got := says(s, "", text)
			require.Equal(t, len(got.calls) == 0, got.content != "", "%q", text)
			if got.content != "" {
				require.Regexp(t, "^[0-9]+$", got.content, "%q", text)
			}
		}
	}
}

// TestRandomAnswersThatMustCallCallATool draws random allowed tokens. The parser of the family must find calls in the
// answer, and their arguments must fit the schemas.
func TestRandomAnswersThatMustCallCallATool(t *testing.T) {
	v, random := byteVocabulary(t), rand.New(rand.NewPCG(1, 2))
	for _, format := range formats(t) {
		for _, once := range []bool{false, true} {
			s := &shape{format: format, tools: twoTools, mode: required, oneCall: once}
			c, err := structured.Compile(v, *s.form(&prompt{}))
			require.NoError(t, err, format.Tools.Name)
			for range 20 {
				text := wander(t, c, random)
				got := says(s, "", text)
				require.Empty(t, strings.ReplaceAll(got.content, "I look.", ""), "%s: %q", format.Tools.Name, text)
				require.NotEmpty(t, got.calls, "%s: %q", format.Tools.Name, text)
				require.False(t, once && len(got.calls) > 1, "%s: %q", format.Tools.Name, text)
				for _, c := range got.calls {
					fits(t, c)
				}
			}
		}
	}
}

// Ensure that if tool_choice names a function, it is called once. A list of allowed tools does not limit the number
// of calls.
func TestTheChoiceOfTools(t *testing.T) {
	only := []string{"get_time"}
	for text, want := range map[string]Chat{
		``:           {choice: toolChoice{mode: auto}},
		`"none"`:     {choice: toolChoice{mode: none}},
		`"required"`: {choice: toolChoice{mode: required}},
		`{"type": "function", "function": {"name": "get_time"}}`: {choice: toolChoice{required, only}, OneCall: true},
		`{"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_time"}}]}}`: {
			choice: toolChoice{auto, only}},
	} {
		c := &Chat{tools: twoTools}
		require.NoError(t, c.readChoice(json.RawMessage(text)), text)
		want.tools = twoTools
		require.Equal(t, &want, c, text)
	}
}

// wander returns an answer of random allowed tokens, with little white space. Where the answer may end, it ends with
// probability 1/2.
func wander(t testing.TB, c *structured.Constraint, random *rand.Rand) string {
	m, mask := c.NewMatcher(), make([]uint64, (eos+len(specials)+63)/64)
	var ids []int
	for !m.Done() {
		require.Less(t, len(ids), 5000, decode(ids))
		m.Mask(mask)
		var may, space []int
		for id := range eos + len(specials) {
			switch {
			case mask[id/64]>>(id%64)&1 == 0:
			case id == ' ' || id == '\t' || id == '\n' || id == '\r':
				space = append(space, id)
			default:
				may = append(may, id)
			}
		}
		if len(may) == 0 {
			may = space
		}
		require.NotEmpty(t, may, decode(ids))
		id := may[random.IntN(len(may))]
		if m.CanStop() && random.IntN(2) == 0 || id == eos {
			break
		}
		// harmony's reasoning has no end that random bytes find
		if name := toolparser.HarmonyReasoning; strings.HasSuffix(decode(ids), "<|channel|>") && id == 'a' {
			for _, id := range encode(strings.TrimPrefix(name+"Hm.<|end|><|start|>assistant", "<|channel|>")) {
				require.NoError(t, m.Accept(id))
				ids = append(ids, id)
			}
			continue
		}
		if name := "commentary"; strings.HasSuffix(decode(ids), name) && id != ' ' && random.IntN(2) == 0 {
			id = ' ' // a call
		} else if strings.HasSuffix(decode(ids), name) && id != ' ' { // a preamble has no such end either
			for _, id := range encode(strings.TrimPrefix(toolparser.HarmonyPreamble+"I look.<|end|><|start|>assistant", "<|channel|>"+name)) {
				require.NoError(t, m.Accept(id))
				ids = append(ids, id)
			}
			continue
		}
		require.NoError(t, m.Accept(id))
		ids = append(ids, id)
	}
	return decode(ids)
}

const (
	romCall  = `{"name": "get_weather", "arguments": {"city": "Rom"}}`
	timeCall = `{"name": "get_time", "arguments": {}}`
)

func TestAnswersHaveTheShape(t *testing.T) {
	v := byteVocabulary(t)
	content := &structured.Form{Regex: "[0-9]+"}
	hermes, thinking := toolparser.Choose("<tool_call>arguments"), toolparser.Choose("<tool_call>arguments<think>")
	deepseek, gptOSS := toolparser.Choose("<｜Assistant｜></think>"), toolparser.Choose("<|channel|><|message|>")
	llama, general := toolparser.Choose("<|python_tag|>"), toolparser.Choose("")
	mistral, tagged := toolparser.Choose("[TOOL_CALLS]"), toolparser.Choose("<tool_call>arguments<function=<parameter=")
	const gptCall = `<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rom"}`
	for _, test := range []struct {
		name      string
		shape     shape
		prompt    string
		yes, noes []string // whole answers, and texts of which the last token is not allowed
	}{
		{"free", shape{format: hermes}, "", nil, nil},
		{"content", shape{format: hermes, content: content}, "", []string{"12"}, []string{"a", "<"}},
		{"content after reasoning", shape{format: thinking, content: content}, "",
			[]string{"12", "<think>\nHm <b>\n</think>\n\n12", "<think></think>12"}, []string{"<think>a</think>a", "<think>a</think>\n\n\n"}},
		{"content after reasoning in the prompt", shape{format: thinking, content: content}, "<think>\n\n</think>\n\n", []string{"12"}, []string{"<"}},
		{"content after reasoning that the prompt begins", shape{format: thinking, content: content}, "<think>\n",
			[]string{"Hm</think>\n\n12"}, []string{"12</think>a"}},
		{"content of DeepSeek", shape{format: deepseek, content: content}, "", []string{"Hm</think>\n\n12"}, []string{"Hm</think>a"}},
		{"content of gpt-oss", shape{format: gptOSS, content: content}, "", []string{"<|channel|>final<|message|>12",
			"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>12"}, []string{"1", "<|channel|>final<|message|>a", "<|channel|>c"}},
		{"a call or content of gpt-oss", shape{format: gptOSS, tools: twoTools, mode: auto, content: content}, "",
			[]string{"<|channel|>final<|message|>12", gptCall}, []string{"<|channel|>commentary<|message|>"}},
		{"a call or text", shape{format: hermes, tools: twoTools, mode: auto}, "",
			[]string{"", "Yes <b> <tool>", "I look.\n<tool_call>\n" + romCall + "\n</tool_call>\n<tool_call>\n" + timeCall + "\n</tool_call>"},
			[]string{"<tool_call>\n{\"name\": \"o", "<tool_call>a", "a<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"B"}},
		{"a call at most", shape{format: hermes, tools: twoTools, mode: auto, oneCall: true}, "",
			[]string{"I look.\n<tool_call>\n" + romCall + "\n</tool_call>"}, []string{"<tool_call>\n" + romCall + "\n</tool_call>a"}},
		{"reasoning, then a call or text", shape{format: thinking, tools: twoTools, mode: auto}, "",
			[]string{"<think>a</think>\n\n<tool_call>\n" + romCall + "\n</tool_call>", "<think>a\n<tool_call>\n" + romCall + "\n</tool_call>", "<think>a", "a"},
			[]string{"<think>a</think><tool_call>a", "<think>a <tool_call> ", "<think>a<tool_call>a"}},
		{"reasoning that the prompt begins, then a call or text", shape{format: thinking, tools: twoTools, mode: auto}, "<think>\n",
			[]string{"Hm", "Hm</think>\n\nYes", "Hm</think><tool_call>\n" + romCall + "\n</tool_call>", "Hm <tool_call>\n" + romCall + "\n</tool_call>"},
			[]string{"a</think><tool_call>a", "Hm <tool_call> "}},
		{"reasoning that the prompt begins, then a call", shape{format: thinking, tools: twoTools, mode: required}, "<think>\n",
			[]string{"Hm</think><tool_call>\n" + romCall + "\n</tool_call>"}, []string{"a</think>b", "a<tool_call>"}},
		{"a call or content", shape{format: hermes, tools: twoTools, mode: auto, content: content}, "",
			[]string{"12", "<tool_call>\n" + romCall + "\n</tool_call>"}, []string{"a", "<tool_call>\n" + romCall + "\n</tool_call>1"}},
		{"a list of Mistral", shape{format: mistral, tools: twoTools, mode: auto}, "",
			[]string{"Hm", "[TOOL_CALLS][" + romCall + ", " + timeCall + "]"}, []string{"[TOOL_CALLS]a", "[TOOL_CALLS][]"}},
		{"Llama's marker", shape{format: llama, tools: twoTools, mode: auto}, "",
			[]string{`{"a": 1}`, `<|python_tag|>{"name": "get_weather", "parameters": {"city": "Rom"}}`}, []string{"<|python_tag|>a"}},
		{"Qwen3-Coder's tags", shape{format: tagged, tools: twoTools, mode: auto}, "",
			[]string{"Hm", "Hm\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>",
				"<tool_call>\n<function=get_weather>\n<parameter=city>\nRom\n</parameter>\n</function>\n</tool_call>\nYes"},
			[]string{"<tool_call>\n<function=o", "<tool_call>{", "<tool_call>\n<function=get_weather>\n<parameter=o",
				"<tool_call>\n<function=get_time>\n<p", "<tool_call>\n<function=get_weather>\n!"}},
		{"Qwen3-Coder's tags of any names", shape{format: tagged, tools: []tool{{name: "f", parameters: json.RawMessage(`{"type": "object"}`)}},
			mode: required}, "", []string{"<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"},
			[]string{"<tool_call>\n<function=f>\n!"}},
		{"no marker", shape{format: general, tools: twoTools, mode: auto}, "", nil, nil},
		{"gpt-oss calls or speaks", shape{format: gptOSS, tools: twoTools, mode: auto}, "",
			[]string{"<|channel|>final<|message|>Yes.", gptCall, ` to=functions.get_time<|channel|>commentary json<|message|>{}`, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + gptCall},
			[]string{"<|channel|>commentary to=functions.o", " to=functions.o", gptCall + "a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			form := test.shape.form(&prompt{end: test.prompt})
			if test.yes == nil {
				require.Nil(t, form)
				return
			}
			c, err := structured.Compile(v, *form)
			require.NoError(t, err)
			for _, text := range test.yes {
				m := c.NewMatcher()
				for _, id := range encode(text) {
					require.NoError(t, m.Accept(id), text)
				}
				require.True(t, m.CanStop(), text)
			}
			for _, text := range test.noes {
				m, ids := c.NewMatcher(), encode(text)
				for _, id := range ids[:len(ids)-1] {
					require.NoError(t, m.Accept(id), text)
				}
				require.Error(t, m.Accept(ids[len(ids)-1]), text)
			}
		})
	}
}

// Ensure that values between tags have the types of the schema.
func TestValuesBetweenTags(t *testing.T) {
	format, err := toolparser.Tools("qwen3_xml", "")
	require.NoError(t, err)
	c := &Chat{choice: toolChoice{mode: auto}, tools: []tool{{name: "f", parameters: json.RawMessage(`{"type": "object", "$defs": {"city":
		{"enum": ["12"]}}, "definitions": {"n": {"$ref": "#/definitions/n"}}, "properties": {"city": {"$ref": "#/$defs/city"}, "days":
		{"type": "integer"}, "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "at": {"type": ["array", "string"]}, "no": {"enum":
		["x", null]}, "both": {"enum": ["x", 1]}, "n": {"$ref": "#/definitions/n"}}}`)}}}
	text := "<tool_call>\n<function=f>\n"
	for _, p := range []string{"city=12", "days= 7", "unit=None", "at=[0]", "no=null", "both=1", "n=2", "unknown=3"} {
		name, value, _ := strings.Cut(p, "=")
		text += "<parameter=" + name + ">\n" + value + "\n</parameter>\n"
	}
	j := &job{shape: shape{format: toolparser.Format{Tools: format}}}
	c.setParser(j)
	p := j.parser(&prompt{})
	one := part{events: append([]toolparser.Event(nil), p.Feed(text+"</function>\n</tool_call>")...)}
	require.Equal(t, []call{{one.spoken().calls[0].id, "f",
		`{"city": "12", "days": 7, "unit": null, "at": [0], "no": null, "both": 1, "n": 2, "unknown": 3}`}}, one.spoken().calls)
}

// Ensure that a tool whose schema cannot be obeyed causes an error if the tool is strict or must be called. If the tool
// is not strict and need not be called, it must accept any object as arguments, and the arguments of the other tools
// must still fit their schemas. After more than maxLoose such tools, all tools that are not strict must accept any
// object.
func TestSchemasThatCannotBeObeyed(t *testing.T) {
	v := byteVocabulary(t)
	odd := json.RawMessage(`{"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}`)
	for _, test := range []struct {
		name    string
		mode    choiceMode
		strict  bool
		refused bool
	}{
		{"the model may call", auto, false, false}, {"strict", auto, true, true}, {"the model must call", required, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &shape{format: toolparser.Choose("<tool_call>arguments"), mode: test.mode,
				tools: append([]tool{{name: "odd", parameters: odd, strict: test.strict}}, twoTools...)}
			all := inductionConstraints()
			all.vocabulary = v
			c, err := all.get(t.Context(), "client", s, &prompt{})
			if test.refused {
				require.ErrorContains(t, s.refusal(err), `The schema of the tool "odd" cannot be obeyed: `)
				return
			}
			require.NoError(t, err)
			m := c.NewMatcher()
			for _, id := range encode("<tool_call>\n{\"name\": \"odd\", \"arguments\": {\"a\": [1, 1]}}") {
				require.NoError(t, m.Accept(id))
			}
			m = c.NewMatcher() // the others must fit
			for _, id := range encode("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"") {
				require.NoError(t, m.Accept(id))
			}
			require.Error(t, m.Accept('x'))
		})
	}
	s := &shape{format: toolparser.Choose("<tool_call>arguments"), mode: auto}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		s.tools = append(s.tools, tool{name: name, parameters: odd, strict: name == "g"})
	}
	loosened := 0
	_, err := structured.Compile(v, *s.form(&prompt{}))
	for ; s.loosen(err); loosened++ {
		_, err = structured.Compile(v, *s.form(&prompt{}))
	}
	require.Equal(t, maxLoose+1, loosened, "the others are loosened at once")
	require.ErrorContains(t, s.refusal(err), `The schema of the tool "g"`)
	require.ErrorContains(t, (&shape{field: "guided_json"}).refusal(errors.New("why")), "guided_json cannot be obeyed: why.")
}
