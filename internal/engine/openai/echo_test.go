package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A scored answer is the prompt with its log probabilities.
type scored struct {
	Choices []struct {
		Index    int
		Text     string
		Finish   string `json:"finish_reason"`
		Logprobs *struct {
			Tokens []string
			Values []*float64           `json:"token_logprobs"`
			Top    []map[string]float64 `json:"top_logprobs"`
		}
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
}

// score sends a completion for which fields are added to the prompt, and puts the
// events of a stream together.
func (s *served) score(t *testing.T, fields string) (all scored) {
	t.Helper()
	body := fmt.Sprintf(`{"model": "demo", "prompt": %q, %s}`, story+story, fields)
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, 200, r.StatusCode, string(data))
	for line := range strings.SplitSeq(string(data), "\n") {
		line = strings.TrimPrefix(line, "data: ")
		if line == "" || line == "[DONE]" {
			continue
		}
		var one scored
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		all.Choices = append(all.Choices, one.Choices...)
		if one.Usage.Total > 0 {
			all.Usage = one.Usage
		}
	}
	return all
}

// Ensure that a prompt can be scored: echo with no token generated has the
// log probabilities that a longer answer has of the prompt, also when the prompt is cached.
func TestAPromptIsScoredWithoutGenerating(t *testing.T) {
	s := start(t, nil)
	const scoring = `"echo": true, "temperature": 0, "logprobs": 2, `
	longer := s.score(t, scoring+`"max_tokens": 1`).Choices[0]
	n := len(longer.Logprobs.Tokens) - 1
	for _, test := range []struct {
		name, fields string
		answers      int
		logprobs     bool
	}{
		{"whole", scoring + `"max_tokens": 0`, 1, true},
		{"stream", scoring + `"max_tokens": 0, "stream": true, "stream_options": {"include_usage": true}`, 1, true},
		{"several answers", scoring + `"max_tokens": 0, "n": 2`, 2, true},
		{"several answers, stream", scoring +
			`"max_tokens": 0, "n": 2, "stream": true, "stream_options": {"include_usage": true}`, 2, true},
		{"the best of several", scoring + `"max_tokens": 0, "best_of": 3`, 1, true},
		{"without logprobs", `"echo": true, "max_tokens": 0`, 1, false},
		{"the first token would end it", scoring + `"max_tokens": 0, "stop": "T"`, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := s.score(t, test.fields)
			require.Len(t, got.Choices, test.answers)
			for _, c := range got.Choices {
				require.Equal(t, story+story, c.Text)
				require.Equal(t, "length", c.Finish)
				if !test.logprobs {
					require.Nil(t, c.Logprobs)
					continue
				}
				require.Equal(t, longer.Logprobs.Tokens[:n], c.Logprobs.Tokens)
				require.Equal(t, longer.Logprobs.Values[:n], c.Logprobs.Values)
				require.Equal(t, longer.Logprobs.Top[:n], c.Logprobs.Top)
			}
			require.Equal(t, n, got.Usage.Prompt)
			require.Zero(t, got.Usage.Completion)
			require.Equal(t, n, got.Usage.Total)
			load := s.engine.Load()
			require.Equal(t, load.Blocks, load.FreeBlocks)
		})
	}
}

func TestNoTokensWithoutEchoAreRefused(t *testing.T) {
	s := start(t, nil)
	for _, test := range []struct{ name, path, fields, param string }{
		{"no echo", "/v1/completions", `"prompt": "x", "max_tokens": 0`, "max_tokens"},
		{"fewer than none", "/v1/completions", `"prompt": "x", "echo": true, "max_tokens": -1`, "max_tokens"},
		{"at least one token", "/v1/completions", `"prompt": "x", "echo": true, "max_tokens": 0, "min_tokens": 1`,
			"min_tokens"},
		{"beams", "/v1/completions", `"prompt": "x", "echo": true, "max_tokens": 0, "use_beam_search": true`, "max_tokens"},
		{"chat", "/v1/chat/completions", `"messages": [{"role": "user", "content": "x"}], "max_tokens": 0`, "max_tokens"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, e := s.send(t, "POST", test.path, "application/json", `{"model": "demo", `+test.fields+`}`)
			require.Equal(t, 400, r.StatusCode, e)
			require.Equal(t, test.param, e["param"], e)
		})
	}
}
