package engine

import (
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// Prompt-lookup speculation (vLLM's ngram proposer) looks for an earlier occurrence of the last tokens of a sequence.
// The engine proposes the tokens after the earlier occurrence as drafts, and the model verifies all drafts in one
// step. The random number of a token depends only on its position, so an answer has the same tokens with and without
// speculation.

// The length of the run of tokens that lookup searches for.
const (
	longestLookup  = 4
	shortestLookup = 2
)

// lookup finds the longest run of tokens at the end that also occurs earlier. It returns up to n tokens after the
// most recent earlier occurrence.
func lookup(tokens []int32, n int) []int32 {
	for size := min(longestLookup, len(tokens)-1); size >= shortestLookup; size-- {
		end := tokens[len(tokens)-size:]
		for start := len(tokens) - size - 1; start >= 0; start-- {
			if slices.Equal(tokens[start:start+size], end) {
				return tokens[start+size : min(start+size+n, len(tokens))]
			}
		}
	}
	return nil
}

// A proposal holds the drafts of all sequences of a step.
type proposal struct {
	ids    []sched.ID
	counts []int32
	tokens []int32
}

// propose looks up drafts for the unfinished sequences for which a step has sampled tokens, and passes the drafts to
// the scheduler. It does nothing if the engine does not speculate.
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
	must(e.sched.SetDrafts(p.ids, p.counts, p.tokens))
}
