package openai_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
)

// next are the n most likely tokens after a prompt.
func (s *served) next(t *testing.T, prompt []int32, n int) []sampling.Logprob {
	r := engine.Request{Prompt: prompt, MaxTokens: 1, IgnoreEOS: true, Params: sampling.Default()}
	r.Temperature, r.Logprobs = 0, n
	stream, err := s.engine.Submit(r)
	require.NoError(t, err)
	events, err := stream.Next(t.Context())
	require.NoError(t, err)
	return events[0].Tokens[0].Top
}

// Ensure that beams of two tokens are the most likely pairs, in order of probability. Each pair begins
// with one of the most likely first tokens.
func TestBeamsAreTheMostLikelyAnswersInOrder(t *testing.T) {
	s := start(t, nil)
	const width = 4
	for _, prompt := range [][]int32{{1, 97}, {1, 97, 98, 97, 99, 97}, {1, 50, 51, 52, 50, 51, 53, 51}} {
		type pair struct {
			text string
			sum  float64
		}
		var pairs []pair
		for _, first := range s.next(t, prompt, 2*width)[:width] {
			for _, second := range s.next(t, append(slices.Clone(prompt), first.Token), 2*width) {
				pairs = append(pairs, pair{s.engine.Config().Tokenizer.Decode([]int32{first.Token, second.Token}),
					float64(first.Value) + float64(second.Value)})
			}
		}
		slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(b.sum, a.sum) })
		ids, _ := json.Marshal(prompt)
		a := s.ask(t, texts, fmt.Sprintf(
			demo+`"prompt": %s, "max_tokens": 2, "n": %d, "use_beam_search": true, "ignore_eos": true}`, ids, width))
		require.Equal(t, 200, a.Status)
		require.Len(t, a.Choices, width)
		require.Equal(t, 2*width, a.Usage.Completion)
		for i, c := range a.Choices {
			require.Equal(t, i, c.Index)
			require.Equal(t, "length", c.Finish)
			require.Equal(t, strings.ToValidUTF8(pairs[i].text, "\uFFFD"), strings.ToValidUTF8(c.Text, "\uFFFD"),
				"beam %d after %v", i, prompt)
		}
	}
	settle(t, s)
}

// Ensure that a search with one beam gives the greedy answer, also if the answer ends with an end
// token.
func TestOneBeamIsGreedy(t *testing.T) {
	s := start(t, nil)
	const body = demo + `"prompt": [1, 2, 72, 105, 3, 2], "max_tokens": 20, "temperature": 0`
	greedy, beam := s.ask(t, texts, body+"}"), s.ask(t, texts, body+`, "use_beam_search": true}`)
	require.Equal(t, "Hi", greedy.Choices[0].Text)
	require.Equal(t, greedy.Choices, beam.Choices)
	beam = s.ask(t, texts, body+`, "use_beam_search": true, "stop_token_ids": [105]}`)
	require.Equal(t, "H", beam.Choices[0].Text, "without the token that ends it")
}

// Ensure that with equal probabilities a large length_penalty puts long answers first, and a negative
// one puts short answers first.
func TestTheLengthPenaltyOrdersBeams(t *testing.T) {
	s := start(t, nil)
	end := s.next(t, []int32{1, 2, 72, 105, 106, 107, 3, 2}, 2)[1].Token // unlikely, and ends an answer
	for penalty, want := range map[int]string{5: "length", -5: "stop"} {
		a := s.ask(t, texts, fmt.Sprintf(demo+`"prompt": [1, 2, 72, 105, 106, 107, 3, 2], "max_tokens": 4, "n": 3, `+
			`"temperature": 0, "use_beam_search": true, "length_penalty": %d, "stop_token_ids": [%d]}`, penalty, end))
		require.Equal(t, 200, a.Status)
		require.Equal(t, "Hijk", a.Choices[0].Text, "by far the most likely one")
		require.Equal(t, want, a.Choices[1].Finish, "penalty %d: %+v", penalty, a.Choices)
	}
}
