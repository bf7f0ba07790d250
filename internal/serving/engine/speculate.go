package engine

import (
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// Prompt-lookup speculation: what followed the last tokens of a sequence where they
// stood before is proposed as its next tokens, and the model checks all of them in
// one step (vLLM's ngram proposer). The random number of a token depends on its
// place alone, so an answer has the same tokens with speculation and without.

// The longest and the shortest row of tokens that is looked up.
const (
	longestLookup  = 4
	shortestLookup = 2
)

// lookup returns at most n tokens that followed the last tokens before, at the most
// recent place where the most of them stood.
func lookup(tokens []int32, n int) []int32 {
	for size := min(longestLookup, len(tokens)-1); size >= shortestLookup; size-- {
		end := tokens[len(tokens)-size:]
		for at := len(tokens) - size - 1; at >= 0; at-- {
			if slices.Equal(tokens[at:at+size], end) {
				return tokens[at+size : min(at+size+n, len(tokens))]
			}
		}
	}
	return nil
}

// A proposal is the drafts of all sequences of a step.
type proposal struct {
	ids    []sched.ID
	counts []int32
	tokens []int32
}

// propose gives the scheduler drafts for the sequences of a step that go on.
func (e *Engine) propose(s *step) {
	n := e.config.NumSpeculativeTokens
	if n == 0 {
		return
	}
	p := &e.proposal
	p.ids, p.counts, p.tokens = p.ids[:0], p.counts[:0], p.tokens[:0]
	for i := range s.rows {
		q := s.rows[i].q
		if q.id == 0 || len(s.rows[i].tokens) == 0 {
			continue
		}
		drafts := lookup(q.tokens, n)
		p.ids, p.counts, p.tokens = append(p.ids, q.id), append(p.counts, int32(len(drafts))), append(p.tokens, drafts...)
	}
	if err := e.sched.SetDrafts(p.ids, p.counts, p.tokens); err != nil {
		panic("engine: " + err.Error()) // only this package's own mistakes lead there
	}
}
