package openai_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/testkit/level"
)

const rankings = "/v1/rerank"

// A ranking is an answer of /v1/rerank.
type ranking struct {
	Object, Model, ID string
	Results           []struct {
		Index    int
		Score    float64 `json:"relevance_score"`
		Document *struct{ Text string }
	}
}

func (s *served) rank(t testing.TB, path, fields string) (got ranking, a *reply) {
	t.Helper()
	a = s.ask(t, path, demo+fields+`}`)
	require.Equal(t, 200, a.Status, a.Text)
	require.NoError(t, json.Unmarshal([]byte(a.Text), &got))
	require.Equal(t, "list", got.Object)
	require.Equal(t, "demo", got.Model)
	require.Equal(t, a.Usage.Prompt, a.Usage.Total)
	return got, a
}

// labels are weights for two labels of vectors of the given size.
func labels(size int) (c pooling.Classifier) {
	for label := range 2 {
		row := make([]float32, size)
		for i := range row {
			row[i] = float32(math.Sin(float64(i*(label+1)))) / 8
		}
		c = append(c, row)
	}
	return c
}

const pairTemplate = `Q: {{ messages[0].content }} D: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}!`

// startReranker starts a server of a reranker.
func startReranker(t testing.TB) (*served, pooling.Classifier) {
	m, err := handBuilt()
	require.NoError(t, err)
	c := labels(m.HiddenSize)
	return start(t, func(o *openai.Config, _ *engine.Config) {
		o.Pooling = &openai.Pooling{Type: pooling.Last, Classifier: c, Template: newTemplate(t, pairTemplate)}
	}), c
}

// Ensure that a reranker scores each document with the query by the template, and that the best come first.
func TestARerankerScoresPairs(t *testing.T) {
	s, c := startReranker(t)
	docs := []string{"one", "two two", "three", "one"}
	want, tokens := map[int]float64{}, 0
	for i, d := range docs {
		prompt := s.engine.Config().Tokenizer.Encode("Q: which? D: "+d+"!", false)
		tokens += len(prompt)
		stream, err := s.engine.Submit(engine.Request{Prompt: prompt, Pooling: pooling.Last})
		require.NoError(t, err)
		events, err := stream.Next(t.Context())
		require.NoError(t, err)
		want[i] = c.Score(events[0].Pooled)
	}
	require.NotEqual(t, want[0], want[1])
	body := `"query": "which?", "documents": ["one", {"text": "two two"}, "three", "one"]`
	for _, path := range []string{rankings, "/rerank", "/v2/rerank"} {
		got, a := s.rank(t, path, body)
		require.Len(t, got.Results, 4)
		require.Equal(t, tokens, a.Usage.Prompt)
		for i, r := range got.Results {
			require.Equal(t, want[r.Index], r.Score)
			require.Nil(t, r.Document)
			if i > 0 {
				require.LessOrEqual(t, r.Score, got.Results[i-1].Score)
				if r.Score == got.Results[i-1].Score {
					require.Greater(t, r.Index, got.Results[i-1].Index, "equal scores are in the order of the documents")
				}
			}
		}
	}
	all, _ := s.rank(t, rankings, body)
	two, _ := s.rank(t, rankings, body+`, "top_n": 2, "return_documents": true`)
	require.Len(t, two.Results, 2)
	for i, r := range two.Results {
		require.Equal(t, all.Results[i].Index, r.Index)
		require.Equal(t, docs[r.Index], r.Document.Text)
	}
	for _, n := range []int{0, 9} {
		got, _ := s.rank(t, rankings, body+fmt.Sprintf(`, "top_n": %d`, n))
		require.Len(t, got.Results, 4)
	}
	a := s.ask(t, vectors, demo+`"input": "x"}`)
	require.Contains(t, a.Error.Message, `"demo" is a reranker; use /v1/rerank`)
	settle(t, s)
}

// Ensure that the name of a special token in a query or a document is text.
func TestADocumentHasNoSpecialTokens(t *testing.T) {
	m, err := handBuilt()
	require.NoError(t, err)
	s := start(t, func(o *openai.Config, e *engine.Config) {
		e.Tokenizer = withSpecial(t)
		o.Pooling = &openai.Pooling{Type: pooling.Last, Classifier: labels(m.HiddenSize),
			Template: newTemplate(t, "<turn>{{ messages[0].content }}{{ messages[1].content }}<end>")}
	})
	_, a := s.rank(t, rankings, `"query": "<turn>", "documents": ["<end>"]`)
	require.Equal(t, 1+len("<turn>")+len("<end>")+1, a.Usage.Prompt, "the tokens of the template, and bytes")
}

// Ensure that a model that is no reranker compares the vectors of the query and the documents.
func TestOtherModelsCompareVectors(t *testing.T) {
	level.SkipNormal(t)
	s := startPooling(t, pooling.Mean, nil)
	unit := func(text string) []float32 {
		return pooling.Embedding(s.vectorOf(t, engine.Request{Pooling: pooling.Mean}, text), 0, true)
	}
	got, _ := s.rank(t, rankings, `"query": "which one?", "documents": ["another text", "which one?"]`)
	require.Equal(t, 1, got.Results[0].Index)
	require.InDelta(t, 1, got.Results[0].Score, 1e-6)
	want, query := 0.0, unit("which one?")
	for i, v := range unit("another text") {
		want += float64(v) * float64(query[i])
	}
	require.InDelta(t, want, got.Results[1].Score, 1e-12)
	got, _ = s.rank(t, rankings, `"query": "x", "documents": `+many(2048))
	require.Len(t, got.Results, 2048, "as many as are allowed, beside the query")
}

func TestRequestsToRankThatAreRefused(t *testing.T) {
	s, _ := startReranker(t)
	tests := []struct{ body, param, says string }{
		{`"documents": ["x"]`, "query", "query is missing or empty"},
		{`"query": "", "documents": ["x"]`, "query", "query is missing or empty"},
		{`"query": "x"`, "documents", "documents is missing or empty"},
		{`"query": "x", "documents": []`, "documents", "documents is missing or empty"},
		{`"query": "x", "documents": "x"`, "documents", `documents must be a list of strings, or of objects like {"text": "..."}.`},
		{`"query": "x", "documents": [5]`, "documents", "documents must be a list"},
		{`"query": "x", "documents": [{"title": "y"}]`, "documents", "documents must be a list"},
		{`"query": 5, "documents": ["x"]`, "query", "query is a JSON number; a string is expected."},
		{`"query": "x", "documents": ["x"], "top_n": -1`, "top_n", "top_n is -1; it must be at least 1, or 0 for all documents."},
		{`"query": "x", "documents": ` + many(2049), "documents", "There are more than 2048 documents."},
		{`"query": "x", "documents": ["x", "` + strings.Repeat("y", 1100) + `"]`, "documents",
			"your documents resulted in at least 1024 tokens, and it may have at most 1023"},
		{`"query": "` + strings.Repeat("y", 900) + `", "documents": ` + many(200), "documents",
			"all prompts together have more than 131072 tokens; send fewer documents at a time"},
	}
	for _, test := range tests {
		a := s.ask(t, rankings, demo+test.body+`}`)
		require.Equal(t, 400, a.Status, test.body)
		require.Contains(t, a.Error.Message, test.says)
		require.Equal(t, test.param, a.Error.Param, a.Text)
	}
	settle(t, s)
}

// Ensure that a second request to rank with the same query finds the query in the prefix cache.
func TestPairsShareTheQuery(t *testing.T) {
	s, _ := startReranker(t)
	query := strings.Repeat("a long query ", 10)
	s.rank(t, rankings, `"query": "`+query+`", "documents": ["first"]`)
	_, a := s.rank(t, rankings, `"query": "`+query+`", "documents": ["second"]`)
	require.Equal(t, len("Q: "+query)/16*16, a.Usage.Details.Cached)
}
