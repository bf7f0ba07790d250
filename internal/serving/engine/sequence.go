package engine

import (
	"slices"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/engine/sampling"
)

// A sequence is one answer with its prompt.
type sequence struct {
	stream *Stream
	index  int
	id     sched.ID // 0: not scheduled by itself, or finished
	params sampling.Params
	tokens []int32 // prompt and answer
	prompt int
	most   int       // tokens of the answer
	ends   []int32   // tokens that end it: those of the request, then the model's own
	tables [][]int32 // blocks, by group of layers
	text   text
	done   bool

	sampled int32 // the last token that was sampled, which is not in tokens before it is delivered

	outside outside // what it has to do with tiers

	waiting int // forks to be made when the prompt is computed (answer 0)
	arrived time.Time
	started time.Time // when it was first scheduled
	first   time.Time // when its first token came
	last    time.Time // when its last one came
}

// output is the answer so far.
func (q *sequence) output() []int32 { return q.tokens[q.prompt:] }

// state is what sampling looks at when the sequence has these tokens.
func (q *sequence) state(tokens []int32) sampling.State {
	st := sampling.State{Prompt: tokens[:q.prompt], Output: tokens[q.prompt:]}
	if len(st.Output) < q.stream.request.MinTokens {
		st.Forbidden = q.ends
	}
	return st
}

// take appends a token and returns the text that it completes, whether the answer has ended, and its StopReason.
func (q *sequence) take(id int32) (text string, finish Finish, reason any) {
	q.tokens = append(q.tokens, id)
	return q.say(id, len(q.tokens))
}

// say is take when the token is the last one of so many.
func (q *sequence) say(id int32, tokens int) (text string, finish Finish, reason any) {
	r := q.stream.request
	n := tokens - q.prompt
	e := q.stream.engine
	ends := n >= r.MinTokens && slices.Contains(q.ends, id)
	var piece string
	if (!ends || r.IncludeStop) && (r.SpecialTokens || !e.config.Tokenizer.Special(id)) {
		piece = e.config.Tokenizer.Text(id)
	}
	text, stop := q.text.add(piece, n > r.MinTokens) // as vLLM's detokenizer
	switch {
	case stop != "":
		return text, FinishStop, stop
	case ends:
		if !slices.Contains(q.ends[len(r.StopTokenIDs):], id) { // it is not the model's own
			reason = id
		}
		return text + q.text.rest(), FinishStop, reason
	case n >= q.most || tokens >= e.config.MaxModelLen:
		return text + q.text.rest(), FinishLength, nil
	}
	return text, "", nil
}

// grow reserves memory for the tokens and blocks of the finished answer, so that most answers never
// reallocate. It is called when the answer is first scheduled; waiting requests and answers hold no such memory.
func (q *sequence) grow(blockSize int) {
	const most = 1 << 12
	q.tokens = slices.Grow(q.tokens, min(q.most, most))
	for i := range q.tables {
		q.tables[i] = slices.Grow(q.tables[i], min(len(q.tokens)+q.most, most)/blockSize+1)
	}
}

// fork is another answer that starts as q does. It shares the tokens of the prompt until grow or its first token.
func (q *sequence) fork(index int) *sequence {
	f := &sequence{
		stream: q.stream, index: index, params: q.params, tokens: slices.Clip(q.tokens[:q.prompt]), prompt: q.prompt,
		tables: make([][]int32, len(q.tables)), most: q.most, ends: q.ends, text: q.text.empty(), arrived: q.arrived, started: q.started,
	}
	f.params.Seed += uint64(index)
	return f
}
