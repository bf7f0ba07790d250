package openai_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/engine/openai"
	"llmmemory/internal/model"
	"llmmemory/internal/model/tokenizer"
	"llmmemory/internal/model/weights"
	"llmmemory/internal/parallel"
)

// spaced is a tokenizer in the way of SentencePiece: it puts a space before a text, cuts it into bytes, and has a token
// with the name <end>.
func spaced(t *testing.T) *tokenizer.Tokenizer {
	vocabulary := map[string]int{}
	for b := range 256 {
		vocabulary[fmt.Sprintf("<0x%02X>", b)] = b
	}
	text, err := json.Marshal(map[string]any{
		"normalizer":   map[string]any{"type": "Prepend", "prepend": "▁"},
		"added_tokens": []any{map[string]any{"id": 2, "content": "<end>", "special": true}},
		"model":        map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}, "byte_fallback": true},
	})
	require.NoError(t, err)
	tok, err := tokenizer.Parse(text)
	require.NoError(t, err)
	return tok
}

func TestEchoIsThePromptAsItWasGiven(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.Tokenizer = spaced(t) })
	const prompt = "ab<end>ñ ab"
	var got struct {
		Choices []struct {
			Text     string
			Logprobs struct {
				Offsets []int `json:"text_offset"`
			}
		}
	}
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(
		fmt.Sprintf(`{"model": "demo", "prompt": %q, "echo": true, "logprobs": 0, "max_tokens": 1, "logit_bias": {"120": 100}, "temperature": 0}`, prompt)))
	require.NoError(t, err)
	defer r.Body.Close()
	require.NoError(t, json.NewDecoder(r.Body).Decode(&got))
	require.Equal(t, prompt+"x", got.Choices[0].Text)
	offsets := got.Choices[0].Logprobs.Offsets
	require.Equal(t, len([]rune(prompt)), offsets[len(offsets)-1], "where the answer begins")
}

func TestTokensThatAreNoTextHaveKeysOfTheirOwn(t *testing.T) {
	s := start(t, nil)
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(
		`{"model": "demo", "prompt": "ñ ñ", "max_tokens": 1, "temperature": 0, "logprobs": 3, "logit_bias": {"195": 100}}`))
	require.NoError(t, err)
	defer r.Body.Close()
	var got struct {
		Choices []struct {
			Logprobs struct {
				Tokens []string
				Top    []json.RawMessage `json:"top_logprobs"`
			}
		}
	}
	require.NoError(t, json.NewDecoder(r.Body).Decode(&got))
	l := got.Choices[0].Logprobs
	require.Equal(t, []string{`bytes:\xc3`}, l.Tokens)
	keys := map[string]bool{}
	d := json.NewDecoder(bytes.NewReader(l.Top[0]))
	for d.More() {
		token, err := d.Token()
		require.NoError(t, err)
		if key, ok := token.(string); ok {
			require.False(t, keys[key], "%q twice in %s", key, l.Top[0])
			keys[key] = true
		}
	}
	require.True(t, keys[l.Tokens[0]], "%s", l.Top[0])
}

func TestABodyThatIsCodedIsRefusedByName(t *testing.T) {
	s := start(t, nil)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(`{"model": "demo", "prompt": "x"}`))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for _, test := range []struct {
		name, coding, body string
		status             int
		want               string
	}{
		{"gzip", "gzip", packed.String(), 415, `Content-Encoding is "gzip"`},
		{"Latin-1", "", "{\"model\": \"demo\", \"prompt\": \"Gr\xf6\xdfe\"}", 400, "not UTF-8"},
		{"as it is", "identity", `{"model": "demo", "prompt": "x"}`, 200, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.NewRequest("POST", s.url+"/v1/completions", strings.NewReader(test.body))
			require.NoError(t, err)
			if test.coding != "" {
				r.Header.Set("Content-Encoding", test.coding)
			}
			got, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			defer got.Body.Close()
			require.Equal(t, test.status, got.StatusCode)
			var answer struct{ Error struct{ Message string } }
			require.NoError(t, json.NewDecoder(got.Body).Decode(&answer))
			require.Contains(t, answer.Error.Message, test.want)
		})
	}
}

// A client that closes its side after its request gets no empty answer with status 200.
func TestAClientThatClosesItsSideIsTold(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.MaxModelLen, c.KVCacheBytes = 4096, 64<<20 })
	for _, more := range []string{"", `, "use_beam_search": true`} {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		require.NoError(t, err)
		defer c.Close()
		body := `{"model": "demo", "prompt": "ab ab", "max_tokens": 4000, "ignore_eos": true` + more + `}`
		_, err = fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body)
		require.NoError(t, err)
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, 499, r.StatusCode)
		require.NoError(t, r.Body.Close())
	}
}

// A model whose weights are damaged gives logits that are not numbers, which JSON cannot hold.
func TestLogprobsThatAreNoNumbersAreAnError(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) {
		pool, err := parallel.New(1)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		c.Pool, c.Model = pool, damaged(t, pool)
	})
	const fields = `"prompt": [1, 2], "max_tokens": 2, "logprobs": 1, "stream": `
	r, e := s.send(t, "POST", "/v1/completions", "application/json", `{"model": "demo", `+fields+`false}`)
	require.Equal(t, 500, r.StatusCode)
	require.Contains(t, e["message"], "not numbers")
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(`{"model": "demo", `+fields+
		`true}`))
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `data: {"error":{"message":"The model's logits are not numbers`)
	require.NotContains(t, string(text), "[DONE]")
}

// damaged is a GPT-2 of one layer, of which one weight of the last norm is NaN.
func damaged(t *testing.T, pool *parallel.Pool) *model.Model {
	const hidden, vocabulary, longest = 8, 256, 1024
	var tensors []*weights.Tensor
	add := func(name string, rows, cols int) {
		values := make([]float32, rows*cols)
		if name == "ln_f.bias" {
			values[0] = float32(math.NaN())
		}
		tensors = append(tensors, weights.FromFloats(name, rows, cols, values))
	}
	add("wte.weight", vocabulary, hidden)
	add("wpe.weight", longest, hidden)
	for _, norm := range []string{"h.0.ln_1", "h.0.ln_2", "ln_f"} {
		add(norm+".weight", 1, hidden)
		add(norm+".bias", 1, hidden)
	}
	for _, m := range []struct {
		name    string
		in, out int
	}{{"attn.c_attn", hidden, 3 * hidden}, {"attn.c_proj", hidden, hidden}, {"mlp.c_fc", hidden, hidden},
		{"mlp.c_proj", hidden, hidden}} {
		add("h.0."+m.name+".weight", m.in, m.out)
		add("h.0."+m.name+".bias", 1, m.out)
	}
	m, err := model.Build(model.Config{
		Family: "gpt2", VocabSize: vocabulary, HiddenSize: hidden, NumLayers: 1, NumHeads: 1, NumKVHeads: 1, HeadDim: hidden,
		IntermediateSize: hidden, MaxModelLen: longest, Norm: model.LayerNorm, NormEps: 1e-5, Activation: model.GELU,
		TieEmbeddings: true, QKVBias: true, OutBias: true, MLPBias: true,
	}, weights.Collect(tensors...), pool, model.Part{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}
