package openai_test

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/testkit/level"
)

const vectors = "/v1/embeddings"

// startPooling starts a server that makes vectors.
func startPooling(t testing.TB, kind pooling.Type, change func(*openai.Config, *engine.Config)) *served {
	return start(t, func(o *openai.Config, e *engine.Config) {
		o.Pooling = &openai.Pooling{Type: kind}
		if change != nil {
			change(o, e)
		}
	})
}

// embed returns the vectors of a request. The parameter input is JSON, and fields is appended to the body.
func (s *served) embed(t testing.TB, input, fields string) (all [][]float32, a *reply) {
	t.Helper()
	a = s.ask(t, vectors, demo+`"input": `+input+fields+`}`)
	require.Equal(t, 200, a.Status, a.Text)
	var body struct {
		Object, Model string
		Data          []struct {
			Object    string
			Index     int
			Embedding json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal([]byte(a.Text), &body))
	require.Equal(t, "list", body.Object)
	require.Equal(t, "demo", body.Model)
	for i, d := range body.Data {
		require.Equal(t, "embedding", d.Object)
		require.Equal(t, i, d.Index)
		var v []float32
		if d.Embedding[0] == '"' {
			var data []byte
			require.NoError(t, json.Unmarshal(d.Embedding, &data)) // base64
			for ; len(data) > 0; data = data[4:] {
				v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(data)))
			}
		} else {
			require.NoError(t, json.Unmarshal(d.Embedding, &v))
		}
		all = append(all, v)
	}
	require.Equal(t, a.Usage.Prompt, a.Usage.Total)
	return all, a
}

// vectorOf returns the engine's vector of a text, with the token that begins texts.
func (s *served) vectorOf(t testing.TB, r engine.Request, text string) []float32 {
	r.Prompt = s.engine.Config().Tokenizer.Encode(text, true)
	stream, err := s.engine.Submit(r)
	require.NoError(t, err)
	events, err := stream.Next(t.Context())
	require.NoError(t, err)
	return events[0].Pooled
}

// Ensure that texts and tokens in each of OpenAI's forms get their vectors, as numbers and as base64.
func TestEmbeddings(t *testing.T) {
	for _, kind := range []pooling.Type{pooling.Last, pooling.Mean} {
		s := startPooling(t, kind, nil)
		plain := engine.Request{Pooling: kind}
		one, two := s.vectorOf(t, plain, "one"), s.vectorOf(t, plain, "two two")
		unit := func(v []float32) []float32 { return pooling.Embedding(v, 0, true) }
		tokens, err := json.Marshal(s.engine.Config().Tokenizer.Encode("two two", true))
		require.NoError(t, err)
		tests := []struct {
			name, input, fields string
			want                [][]float32
			tokens              int
		}{
			{"a text", `"one"`, "", [][]float32{unit(one)}, 4},
			{"texts", `["one", "two two", "one"]`, "", [][]float32{unit(one), unit(two), unit(one)}, 16},
			{"tokens", string(tokens), "", [][]float32{unit(two)}, 8},
			{"lists of tokens", "[" + string(tokens) + "]", "", [][]float32{unit(two)}, 8},
			{"numbers", `"one"`, `, "encoding_format": "float", "user": "x"`, [][]float32{unit(one)}, 4},
			{"base64", `["one", "two two"]`, `, "encoding_format": "base64"`, [][]float32{unit(one), unit(two)}, 12},
			{"dimensions", `"one"`, `, "dimensions": 5`, [][]float32{pooling.Embedding(one, 5, true)}, 4},
			{"not normalized", `"one"`, `, "normalize": false, "dimensions": 5`, [][]float32{one[:5]}, 4},
			{"without the first token", `"` + "\x20one" + `"`, `, "add_special_tokens": false`, [][]float32{nil}, 4},
			{"the last tokens", `"two two"`, `, "truncate_prompt_tokens": 3`, [][]float32{nil}, 3},
		}
		for _, test := range tests {
			t.Run(fmt.Sprint(kind, " ", test.name), func(t *testing.T) {
				got, a := s.embed(t, test.input, test.fields)
				require.Len(t, got, len(test.want))
				for i, want := range test.want {
					if want != nil {
						require.Equal(t, want, got[i])
					}
				}
				require.Equal(t, test.tokens, a.Usage.Prompt)
			})
		}
	}
}

func TestRequestsForEmbeddingsThatAreRefused(t *testing.T) {
	s := startPooling(t, pooling.Last, nil)
	tests := []struct{ body, param, says string }{
		{`{"model": "demo"}`, "input", "input is missing."},
		{demo + `"input": []}`, "input", "The prompt is empty."},
		{demo + `"input": ""}`, "", ""}, // the first token is a prompt
		{demo + `"input": "", "add_special_tokens": false}`, "input", "The prompt is empty."},
		{demo + `"input": {"text": "x"}}`, "input", "input must be a string, a list of strings, a list of tokens, or a list of lists of tokens."},
		{demo + `"input": ["x", 5]}`, "input", "input must be"},
		{demo + `"input": [1, 100000]}`, "input", "Token 100000 is not in the vocabulary"},
		{demo + `"input": ` + many(2049) + `}`, "input", "There are 2049 inputs; at most 2048 are possible."},
		{demo + `"input": ` + many(5000) + `}`, "input", "There are more than 4096 inputs."},
		{demo + `"input": "x", "encoding_format": "hex"}`, "encoding_format", `encoding_format is "hex"; float and base64 are possible.`},
		{demo + `"input": "x", "dimensions": 0}`, "dimensions", "dimensions is 0; it must be from 1 to"},
		{demo + `"input": "x", "dimensions": 100000}`, "dimensions", "dimensions is 100000; it must be from 1 to"},
		{demo + `"input": "x", "temperature": 1}`, "temperature", `"temperature" is not a field of this request`},
		{demo + `"input": "` + strings.Repeat("x", 2000) + `"}`, "input", "This model's maximum context length is 1024 tokens. However, your " +
			"input resulted in at least 1024 tokens, and it may have at most 1023. Please reduce the length of the input."},
		{demo + `"input": [` + strings.Repeat("5, ", 1023) + `5]}`, "input", "your input resulted in 1024 tokens, and it may"},
		{`{"model": "other", "input": "x"}`, "model", `The model "other" does not exist`},
	}
	for _, test := range tests {
		a := s.ask(t, vectors, test.body)
		if test.says == "" {
			require.Equal(t, 200, a.Status, a.Text)
			continue
		}
		require.Contains(t, a.Error.Message, test.says)
		require.Equal(t, test.param, a.Error.Param, a.Text)
		require.Contains(t, []int{400, 404}, a.Status)
	}
	settle(t, s)
}

// Ensure that a server of chats says how to get vectors.
func TestAServerWithoutPoolingSaysHowToGetVectors(t *testing.T) {
	s := start(t, nil)
	for path, body := range map[string]string{vectors: demo + `"input": "x"}`, "/v1/rerank": demo + `"query": "x", "documents": ["x"]}`} {
		a := s.ask(t, path, body)
		require.Equal(t, 400, a.Status)
		require.Equal(t, "not_supported", a.Error.Code)
		require.Contains(t, a.Error.Message, "start llmserve with --runner pooling")
	}
}

// Ensure that a request with many inputs, in make test-long as many as OpenAI allows, gets their vectors in order, although only a few fit into
// the queue, and that other requests are answered beside it.
func TestManyInputs(t *testing.T) {
	s := startPooling(t, pooling.Last, func(_ *openai.Config, e *engine.Config) { e.MaxNumSeqs, e.MaxWaiting = 4, 8 })
	n := 256
	if level.Long() {
		n = 2048
	}
	var input []string
	for i := range n {
		input = append(input, fmt.Sprint(i%7))
	}
	text, err := json.Marshal(input)
	require.NoError(t, err)
	var wait sync.WaitGroup
	wait.Go(func() { s.complete(t, "12345678", 20, "") })
	got, a := s.embed(t, string(text), `, "encoding_format": "base64", "dimensions": 6`)
	wait.Wait()
	require.Len(t, got, n)
	require.Equal(t, 2*n, a.Usage.Prompt)
	for i, v := range got {
		if i < 7 {
			require.Equal(t, pooling.Embedding(s.vectorOf(t, engine.Request{Pooling: pooling.Last}, input[i]), 6, true), v)
		} else {
			require.Equal(t, got[i%7], v)
		}
	}
	settle(t, s)
}

// Ensure that a client that leaves ends the work for its inputs, and that one that closes its side gets an error.
func TestAClientThatLeavesGetsNoVectors(t *testing.T) {
	s := startPooling(t, pooling.Mean, func(_ *openai.Config, e *engine.Config) { e.MaxNumSeqs, e.MaxNumBatchedTokens = 2, 16 })
	body := demo + `"input": ["` + strings.Repeat(strings.Repeat("x", 1000)+`", "`, 500) + `x"]}`
	for _, half := range []bool{true, false} {
		c := s.dialPath(t, vectors, fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
		if half {
			require.NoError(t, c.CloseWrite())
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			require.Equal(t, 499, r.StatusCode)
			require.NoError(t, r.Body.Close())
		} else {
			require.NoError(t, c.Close())
		}
	}
	settle(t, s)
}

// Ensure that a key's tokens are those of the inputs.
func TestInputsCountAgainstTheLimitsOfTheirKey(t *testing.T) {
	s := startPooling(t, pooling.Last, func(o *openai.Config, _ *engine.Config) {
		o.APIKeys, o.Limits = []string{"a"}, openai.Limits{Tokens: 1000}
	})
	a := s.ask(t, vectors, demo+`"input": ["123456789", "123456789"]}`, "Authorization", "Bearer a")
	require.Equal(t, 200, a.Status, a.Text)
	require.Equal(t, 980, a.Left(t, "Tokens"))
	require.Equal(t, 401, s.ask(t, vectors, demo+`"input": "x"}`).Status)
}

// Ensure that the metrics count prompts, and no answers.
func TestMetricsOfVectors(t *testing.T) {
	s := startPooling(t, pooling.Last, nil)
	s.embed(t, `["one", "two"]`, "")
	_, a := s.roundTrip(t, "GET", "/metrics", "")
	for _, line := range []string{
		`vllm:request_success_total{engine="0",finished_reason="stop",model_name="demo"} 2`,
		`vllm:prompt_tokens_total{engine="0",model_name="demo"} 8`, `vllm:generation_tokens_total{engine="0",model_name="demo"} 0`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="demo"} 0`, `vllm:e2e_request_latency_seconds_count{engine="0",model_name="demo"} 2`,
		`vllm:request_generation_tokens_sum{engine="0",model_name="demo"} 0`,
	} {
		require.True(t, strings.Contains(a.Text, line), line)
	}
}

// Ensure that base64 in the answer is the standard one with padding, which clients decode.
func TestBase64HasPadding(t *testing.T) {
	s := startPooling(t, pooling.Last, nil)
	_, a := s.embed(t, `"one"`, `, "encoding_format": "base64", "dimensions": 1`)
	_, text, _ := strings.Cut(a.Text, `"embedding":"`)
	text, _, _ = strings.Cut(text, `"`)
	data, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	require.Len(t, data, 4)
	require.Len(t, text, 8)
}
