package openai_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/anthropic"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/engine/openai/responses"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/model/lora"
	"llmmemory/internal/serving/model/weights"
)

// startAdapted serves the hand-built model, also for vectors, with two random adapters, "one" and "two".
func startAdapted(t *testing.T) *served {
	return start(t, func(oc *openai.Config, ec *engine.Config) {
		random := func(seed uint64) *lora.Adapter {
			rnd := rand.New(rand.NewPCG(seed, 1))
			tensor := func(rows, cols int) *weights.Tensor {
				v := make([]float32, rows*cols)
				for i := range v {
					v[i] = float32(rnd.NormFloat64())
				}
				return weights.FromFloats("", rows, cols, v)
			}
			inputs := ec.Model.NumHeads * ec.Model.HeadDim
			return &lora.Adapter{Modules: map[string]*lora.Module{"model.layers.1.self_attn.o_proj": {
				A: tensor(4, inputs), B: tensor(ec.Model.HiddenSize, 4), Scale: 1}}}
		}
		m, err := induction.New(ec.Pool, model.Part{}, model.WithAdapters(random(1), random(2)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		ec.Model, ec.Adapters = m, []string{"one", "two"}
		oc.Adapters = []openai.Adapter{{Name: "one", Path: "/adapters/one"}, {Name: "two", Path: "two.gguf", Base: "parent"}}
		oc.Interfaces = []openai.Interface{responses.Interface(), anthropic.Interface()}
		oc.Pooling = &openai.Pooling{Type: pooling.Last}
	})
}

// Ensure that the field model chooses the adapter in all interfaces, and that answers have its name.
func TestTheModelOfARequestChoosesTheAdapter(t *testing.T) {
	s := startAdapted(t)
	const text, talk = `"prompt": "one two three, one two", "max_tokens": 6`, `"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 16`
	for _, test := range []struct{ name, path, body string }{
		{"completions", "/v1/completions", text + `, "temperature": 0`},
		{"a stream", "/v1/completions", text + `, "temperature": 0, "stream": true`},
		{"beams", "/v1/completions", text + `, "temperature": 0, "use_beam_search": true, "n": 2`},
		{"chats", "/v1/chat/completions", talk + `, "temperature": 0`},
		{"responses", "/v1/responses", `"input": "one two three", "max_output_tokens": 16, "temperature": 0, "store": false`},
		{"messages", "/v1/messages", talk + `, "temperature": 0`},
		{"a stream of messages", "/v1/messages", talk + `, "temperature": 0, "stream": true`},
	} {
		t.Run(test.name, func(t *testing.T) {
			answers := map[string]string{}
			for _, name := range []string{"demo", "one", "two"} {
				ask := func() string {
					a := s.ask(t, test.path, fmt.Sprintf(`{"model": %q, %s}`, name, test.body))
					require.Equal(t, 200, a.Status, a.Text)
					require.Contains(t, a.Text, fmt.Sprintf(`"model":%q`, name))
					return textsOf(t, a.Text)
				}
				answers[name] = ask()
				require.Equal(t, answers[name], ask())
			}
			require.Contains(t, answers["demo"], "three")
			require.NotEqual(t, answers["demo"], answers["one"])
			require.NotEqual(t, answers["demo"], answers["two"])
			require.NotEqual(t, answers["one"], answers["two"])
		})
	}
	for _, path := range []string{"/tokenize", "/v1/messages/count_tokens"} {
		a := s.ask(t, path, `{"model": "two", "messages": [{"role": "user", "content": "a"}]}`)
		require.Equal(t, 200, a.Status, a.Text)
	}
}

// Ensure that vectors and scores are those of the adapter that the field model names, to the bit.
func TestTheModelOfARequestForVectorsChoosesTheAdapter(t *testing.T) {
	s, seen := startAdapted(t), map[string]bool{}
	for adapter, name := range []string{"demo", "one", "two"} {
		unit := func(text string) []float32 {
			return pooling.Embedding(s.vectorOf(t, engine.Request{Pooling: pooling.Last, Adapter: adapter}, text), 0, true)
		}
		query, document, score := unit("one two"), unit("one three"), 0.0
		for i, v := range document {
			score += float64(v) * float64(query[i])
		}
		require.NotContains(t, seen, fmt.Sprint(query))
		seen[fmt.Sprint(query)] = true
		var body struct {
			Model   string
			Data    []struct{ Embedding []float32 }
			Results []struct {
				Score float64 `json:"relevance_score"`
			}
		}
		a := s.ask(t, vectors, fmt.Sprintf(`{"model": %q, "input": ["one two", "one three"]}`, name))
		require.NoError(t, json.Unmarshal([]byte(a.Text), &body), a.Text)
		require.Equal(t, name, body.Model)
		require.Equal(t, query, body.Data[0].Embedding)
		require.Equal(t, document, body.Data[1].Embedding)
		a = s.ask(t, "/v1/rerank", fmt.Sprintf(`{"model": %q, "query": "one two", "documents": ["one three"]}`, name))
		require.NoError(t, json.Unmarshal([]byte(a.Text), &body), a.Text)
		require.Equal(t, name, body.Model)
		require.Equal(t, score, body.Results[0].Score)
	}
}

// textsOf returns the texts of an answer, which is JSON or a stream of events.
func textsOf(t *testing.T, answer string) string {
	var all strings.Builder
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				collect(one)
			}
		case map[string]any:
			for _, name := range []string{"choices", "message", "content", "text", "output", "delta"} {
				if s, ok := v[name].(string); ok {
					all.WriteString(s)
				} else {
					collect(v[name])
				}
			}
		}
	}
	for line := range strings.Lines(answer) {
		var v any
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &v) == nil {
			collect(v)
		}
	}
	return all.String()
}

func TestModelsListAdaptersAsVLLMDoes(t *testing.T) {
	s := startAdapted(t)
	var list struct{ Data []map[string]any }
	_, a := s.roundTrip(t, "GET", "/v1/models", "")
	require.NoError(t, json.Unmarshal([]byte(a.Text), &list))
	require.Len(t, list.Data, 3)
	for i, want := range []struct{ id, root, parent any }{{"demo", nil, nil}, {"one", "/adapters/one", "demo"}, {"two", "two.gguf", "parent"}} {
		require.Equal(t, []any{want.id, want.root, want.parent}, []any{list.Data[i]["id"], list.Data[i]["root"], list.Data[i]["parent"]})
		require.EqualValues(t, 1024, list.Data[i]["max_model_len"])
		_, a := s.roundTrip(t, "GET", "/v1/models/"+want.id.(string), "")
		var one map[string]any
		require.NoError(t, json.Unmarshal([]byte(a.Text), &one))
		require.Equal(t, list.Data[i], one)
	}
	a = s.ask(t, "/v1/completions", `{"model": "three", "prompt": "a"}`)
	require.Equal(t, 404, a.Status)
	require.Equal(t, `The model "three" does not exist; this server has "demo", "one", "two".`, a.Error.Message)
}
