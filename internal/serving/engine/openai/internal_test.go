package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/structured"
	"llmmemory/internal/serving/toolparser"
)

// Ensure that a seed of -1 means a random seed, as in vLLM and llama.cpp. Other seeds are used as they are.
func TestTheSeedMinusOneIsRandom(t *testing.T) {
	seed := func(n int64) uint64 {
		r, err := (&common{Seed: &n}).request()
		require.NoError(t, err)
		return r.Seed
	}
	require.NotEqual(t, seed(-1), seed(-1))
	require.Equal(t, seed(-2), seed(-2))
	require.EqualValues(t, 7, seed(7))
}

// Ensure that the kind of a parameter is found in few steps if its schema refers to itself many times.
func TestReferencesOfParametersAreFollowedOnce(t *testing.T) {
	refs := strings.Repeat(`{"$ref": "#/$defs/a"},`, 5)
	schema := `{"properties": {"p": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [` + refs + `{"type": "string"}]}}}`
	allocs := testing.AllocsPerRun(1, func() {
		kinds := newParameterKinds([]tool{{name: "f", parameters: json.RawMessage(schema)}})
		require.Equal(t, toolparser.TextParameter, kinds.kind("f", "p"))
	})
	require.Less(t, allocs, 1000.0)
}

// Ensure that the schema of a tool is read once, and not once for each parameter of an answer.
func TestTheSchemaOfParametersIsReadOnce(t *testing.T) {
	kinds := newParameterKinds([]tool{{name: "f", parameters: json.RawMessage(`{"properties": {"p": {"type": "string"}, "q": {"type": ["string", "null"]}}}`)}})
	require.Equal(t, toolparser.TextParameter, kinds.kind("f", "p"))
	kinds.tools[0].parameters = nil
	allocs := testing.AllocsPerRun(10, func() {
		require.Equal(t, toolparser.TextParameter, kinds.kind("f", "p"))
		require.Equal(t, toolparser.JSONParameter, kinds.kind("f", "r"))
		require.Equal(t, toolparser.JSONParameter, kinds.kind("g", "p"))
	})
	require.Less(t, allocs, 20.0)
	require.Equal(t, toolparser.TextOrNullParameter, kinds.kind("f", "q"))
}

// Ensure that the arguments between tags have the required parameters, in the order of the schema.
func TestRequiredParametersBetweenTags(t *testing.T) {
	for name, one := range map[string]string{"qwen3_coder": "<parameter=%s>\nx</parameter>\n",
		"glm45": "<arg_key>%s</arg_key>\n<arg_value>x</arg_value>\n"} {
		tools, err := toolparser.Tools(name, "")
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) {
			requiredParameters(t, tools.Tagged, func(name string) string { return fmt.Sprintf(one, name) })
		})
	}
}

func requiredParameters(t *testing.T, tagged *toolparser.Tagged, one func(name string) string) {
	v := bytesVocabulary(t)
	for _, test := range []struct {
		schema             string
		allowed, forbidden []string
	}{
		{`{"properties": {"b": {}, "a": {}}, "required": ["a"]}`, []string{one("a"), one("b") + one("a")}, []string{"", one("b"), one("a") + one("b"), one("a") + one("a")}},
		{`{"properties": {"b": {}, "a": {}}, "required": ["a", "c", "b"]}`, []string{one("b") + one("a") + one("c")}, []string{one("b") + one("a")}},
		{`{"properties": {"b": {}, "a": {}}}`, []string{"", one("b") + one("a")}, []string{one("c"), one("a") + one("b")}},
		{`{"additionalProperties": false}`, []string{""}, []string{one("a")}},
		{`{}`, []string{"", one("a")}, []string{"x"}},
	} {
		form := (&tool{parameters: json.RawMessage(test.schema)}).taggedArguments(tagged, false)
		c, err := structured.Compile(v, structured.Form{Sequence: []structured.Form{form, {Text: "."}}})
		require.NoError(t, err)
		accepts := func(text string) bool {
			m := c.NewMatcher()
			for _, b := range []byte(text + ".") {
				if m.Accept(int(b)) != nil {
					return false
				}
			}
			return m.CanStop()
		}
		for _, text := range test.allowed {
			require.True(t, accepts(text), "%s: %q", test.schema, text)
		}
		for _, text := range test.forbidden {
			require.False(t, accepts(text), "%s: %q", test.schema, text)
		}
	}
}

// bytesVocabulary returns a vocabulary of all bytes, and the end of an answer.
func bytesVocabulary(t *testing.T) *structured.Vocabulary {
	tokens := make([][]byte, 257)
	for b := range 256 {
		tokens[b] = []byte{byte(b)}
	}
	v, err := structured.NewVocabulary(tokens, map[int]string{256: "<end>"}, []int{256})
	require.NoError(t, err)
	return v
}

// late is a reader that fails as a connection does when the rest of a body does not arrive before the server's
// deadline.
type late struct{}

func (late) Read([]byte) (int, error) { return 0, fmt.Errorf("read tcp: %w", os.ErrDeadlineExceeded) }

func TestABodyThatComesTooSlowlyIsNotCalledBadJSON(t *testing.T) {
	r, err := http.NewRequest("POST", "/v1/completions", io.MultiReader(strings.NewReader(`{"model": `), late{}))
	require.NoError(t, err)
	s := &Server{config: Config{
		Bounds: Bounds{MaxBody: 100},
	}, bodies: newBodyMemory(100)}
	_, err = s.read(nil, s.withReservation(r))
	var e *apiError
	require.ErrorAs(t, err, &e)
	require.Equal(t, http.StatusRequestTimeout, e.status)
	require.Equal(t, "The body did not arrive in time.", e.Message)
}

// Ensure that the parts of a message are joined once. Adding them one by one would take quadratic work.
func TestManyPartsOfAMessageAreJoinedOnce(t *testing.T) {
	const n = 10000
	text := "[" + strings.TrimSuffix(strings.Repeat(`{"type": "text", "text": "a"},`, n), ",") + "]"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := chatParts.Text(&Chat{}, "message 0", []byte(text))
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.Equal(t, strings.TrimSuffix(strings.Repeat("a\n", n), "\n"), got)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(50<<20))
}

func TestAnAllowanceComesBackEvenly(t *testing.T) {
	a := newAllowance(Limits{Requests: 3, Tokens: 100})
	begin := time.Unix(1000, 0)
	steps := []struct {
		name    string
		seconds float64
		tokens  int
		refused bool
		left    [2]string // requests and tokens, after it
	}{
		{"the first", 0, 10, false, [2]string{"2", "90"}},
		{"too few tokens are left, and no request is used up", 0, 95, true, [2]string{"2", "90"}},
		{"what is left", 0, 90, false, [2]string{"1", "0"}},
		{"tokens came back", 6, 10, false, [2]string{"0", "0"}},
		{"no request is left", 6, 0, true, [2]string{"0", "0"}},
		{"a request came back", 20, 20, false, [2]string{"0", "3"}},
	}
	for _, s := range steps {
		h := http.Header{}
		err := a.take(h, s.tokens, begin.Add(time.Duration(s.seconds*float64(time.Second))))
		require.Equal(t, s.refused, err != nil, s.name)
		require.Equal(t, s.refused, h.Get("Retry-After") != "", s.name)
		require.Equal(t, s.left, [2]string{h.Get("X-Ratelimit-Remaining-Requests"), h.Get("X-Ratelimit-Remaining-Tokens")},
			s.name)
	}
}

// Scores are those of vLLM's get_beam_search_score.
func TestTheScoreOfABeamIsItsLogprobByItsLength(t *testing.T) {
	for _, test := range []struct {
		name    string
		ended   bool
		penalty float64
		want    float64
	}{
		{"by its length", false, 1, -2},
		{"the end is no token", true, 1, -2.5},
		{"by the square", false, 2, -0.4},
		{"by nothing", true, 0, -10},
		{"times its length", false, -1, -50},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := beam{length: 5, logprob: -10, ended: test.ended}
			require.InDelta(t, test.want, b.score(test.penalty), 1e-9)
		})
	}
}

// Ensure that beam search ignores no field of a request except the seed. The seed has no effect on it.
func TestBeamSearchIgnoresNoField(t *testing.T) {
	fields := map[string]bool{"Prompt": true, "N": true, "MaxTokens": true, "StopTokenIDs": true, "IgnoreEOS": true,
		"CacheSalt": true, "Adapter": true, "Seed": true, "IncludeStop": true, "SpecialTokens": true, "ShownTokens": true} // it supports all values of these
	for _, f := range beamFields {
		require.False(t, fields[f.field], "%s is twice in beamFields", f.field)
		fields[f.field] = true
	}
	fields["Constraint"], fields["Matcher"] = true, true // Server.beams sets them
	fields["Pooling"] = true                             // of requests without answers
	for _, f := range reflect.VisibleFields(reflect.TypeFor[engine.Request]()) {
		if !f.Anonymous {
			require.True(t, fields[f.Name], "%s: add it to beamFields, or here if beam search supports all its values", f.Name)
			delete(fields, f.Name)
		}
	}
	require.Empty(t, fields, "engine.Request has no such field")
	require.NoError(t, unsupportedByBeams(&engine.Request{Params: sampling.Default()}))
}

// Ensure that only a few long bodies are tokenized at a time. Short bodies do not wait for them. A waiting request
// ends when its client disconnects.
func TestBodiesBecomeTokensAFewAtATime(t *testing.T) {
	slots := newSlots()
	var ends []func()
	for range cap(slots.long) {
		end, err := slots.take(t.Context(), shortBody+1)
		require.NoError(t, err)
		ends = append(ends, end)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := slots.take(gone, shortBody+1)
	require.ErrorIs(t, err, errGone)
	end, err := slots.take(t.Context(), shortBody)
	require.NoError(t, err)
	end()
	ends[0]()
	_, err = slots.take(t.Context(), shortBody+1)
	require.NoError(t, err)
}

// Ensure that a large body waits until there is memory for it, and is then read. If its client disconnects, it waits
// no longer. A short body does not wait.
func TestALargeBodyIsReadWhenThereIsMemory(t *testing.T) {
	const maxBody = 1 << 20
	s := &Server{config: Config{
		Bounds: Bounds{MaxBody: maxBody},
	}, bodies: newBodyMemory(maxBody), slots: newSlots()}
	complete := s.bodies.sent(t, "unknown", largeBodies*maxBody/2/shortBody)
	read := func(ctx context.Context, size int, known bool) (int, error) {
		r, err := http.NewRequestWithContext(ctx, "POST", "/v1/completions", strings.NewReader(strings.Repeat(" ", size)))
		require.NoError(t, err)
		if !known {
			r.ContentLength = -1
		}
		r = s.withReservation(r)
		data, err := s.read(httptest.NewRecorder(), r)
		pieces := reservationOf(r).share.pieces
		require.Equal(t, err == nil, len(s.slots.long)+len(s.slots.short) == 1, "the slot is taken until free")
		free(r)
		require.Empty(t, s.slots.long)
		require.Empty(t, s.slots.short)
		if err == nil {
			require.Len(t, data, size)
		}
		return pieces, err
	}
	late, end := context.WithCancel(t.Context())
	end()
	for _, known := range []bool{true, false} {
		_, err := read(late, shortBody+1, known)
		require.ErrorIs(t, err, errGone)
		pieces, err := read(t.Context(), shortBody-1, known)
		require.NoError(t, err)
		require.Zero(t, pieces)
	}
	s.bodies.giveBack(&complete.share)
	for size, want := range map[int]int{shortBody + 1: 1, 1<<17 + 1: 4, 1<<20 - 1: 31} {
		for _, known := range []bool{true, false} {
			pieces, err := read(t.Context(), size, known)
			require.NoError(t, err)
			require.Equal(t, want, pieces)
		}
	}
	require.Zero(t, s.bodies.used)
}

func TestTheValuesOfABodyAreCounted(t *testing.T) {
	for body, want := range map[string][2]int{ // tokens and others
		`{"a": 1, "b": [1, 2, {"c": 3, "d": "x,y\",["}]}`: {0, 4},
		`{"prompt": [1, 2, [3, 4]], "a": 1}`:              {3, 1},
		`{"tokens": [1, 2], "x": [1, 2]}`:                 {1, 2},
		`{"x": {"prompt": [1, 2, 3]}}`:                    {0, 2},
		`{"x": "prompt", "y": [1, 2]}`:                    {0, 2},
		`[1, 2, 3]`:                                       {0, 2},
		`{"a`:                                             {0, 0},
		`{"a\`:                                            {0, 0},
		``:                                                {0, 0},
	} {
		tokens, others, _ := values([]byte(body), tokenFields(reflect.TypeFor[completionRequest]()))
		require.Equal(t, want, [2]int{tokens, others}, body)
	}
	tokens, others, _ := values([]byte(`{"input": [1, 2, [3, 4]], "prompt": [1, 2]}`), tokenFields(reflect.TypeFor[embeddingRequest]()))
	require.Equal(t, [2]int{3, 2}, [2]int{tokens, others})
}

// Ensure that an answer with several calls is streamed in the same chunks as OpenAI's stream of such an answer. If the
// client wants no parallel calls, only the first call is kept.
func TestCallsBecomeParts(t *testing.T) {
	hermes, err := toolparser.Tools("hermes", "")
	require.NoError(t, err)
	format := toolparser.Format{Tools: hermes}
	for _, oneCall := range []bool{false, true} {
		j := &job{streams: make([]*engine.Stream, 1), prompts: make([]prompt, 1), n: 1, bestOf: 1, oneCall: oneCall,
			parser: func(*prompt) *toolparser.Parser {
				return format.Parser(toolparser.Options{Known: func(string) bool { return true }})
			}}
		o, a, calls := j.output(), &answer{chat: true}, 0
		var sent []string
		for _, e := range []engine.Event{
			{Text: `a<tool_call>{"name": "f", "argu`}, {Text: `ments": {"b": `}, {Text: `1}}</tool_call>`},
			{Text: `<tool_call>{"name": "g", "arguments": {}}`, Finish: engine.FinishStop},
		} {
			p, err := o.next(0, e)
			require.NoError(t, err)
			for _, c := range a.chunks(p, &calls) {
				for i := range c.Delta.ToolCalls {
					c.Delta.ToolCalls[i].ID = ""
				}
				text, err := json.Marshal(c.Delta)
				require.NoError(t, err)
				sent = append(sent, string(text))
			}
			require.Equal(t, e.Finish != "", p.finish == finishCalls)
		}
		want := []string{
			`{"content":"a"}`,
			`{"tool_calls":[{"index":0,"type":"function","function":{"name":"f","arguments":""}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"{\"b\": "}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`,
			`{"tool_calls":[{"index":1,"type":"function","function":{"name":"g","arguments":""}}]}`,
			`{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]}`,
		}
		if oneCall {
			want = want[:4]
		}
		want = append(want, "{}") // the finish reason
		require.Equal(t, want, sent)
	}
}

// Ensure that a client cannot make lines of the log long by what is left out.
func TestTheWarningInALogIsShort(t *testing.T) {
	r := &response{}
	recordWarnings(r, []string{"a", strings.Repeat("x", 5000)})
	require.Equal(t, "a "+strings.Repeat("x", 998)+"...", r.record.Warning)
}

// Ensure that the schema of a tool's arguments has the type object once, whatever the request has for it.
func TestTheSchemaOfArgumentsHasATypeOnce(t *testing.T) {
	for _, schema := range []string{`{"properties": {}}`, `{"type": null, "properties": {}}`, `{"type": "object", "properties": {}}`} {
		tool := tool{name: "f", parameters: json.RawMessage(schema)}
		require.NoError(t, tool.setParameters())
		require.JSONEq(t, `{"type": "object", "properties": {}}`, string(tool.parameters))
		require.Equal(t, 1, strings.Count(string(tool.parameters), "type"))
	}
}

// Ensure that the fields of other servers that omit the reasoning do so in chats, also beside each other.
func TestFieldsThatOmitTheReasoning(t *testing.T) {
	const omitted = `"thinking": {"type": "enabled", "display": "omitted"}`
	for fields, want := range map[string]bool{
		`"reasoning": {"exclude": true}`: true, omitted: true, omitted + `, "reasoning": {"effort": "low"}`: true,
		`"thinking": {"type": "enabled"}, "reasoning": {"exclude": false}`: false,
	} {
		var body chatFields
		require.NoError(t, json.Unmarshal([]byte(`{"messages": [{"role": "user", "content": "x"}], `+fields+`}`), &body))
		c, err := body.chat()
		require.NoError(t, err)
		require.Equal(t, want, c.OmitReasoning, fields)
	}
}
