package engine

import (
	"slices"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/structured"
)

// A sequence is an answer with its prompt.
type sequence struct {
	stream    *Stream
	index     int
	id        sched.ID // 0 if the scheduler has no request for this sequence: it is not forked yet, or finished
	params    sampling.Params
	tokens    []int32   // prompt and answer
	prompt    int       // tokens of the prompt
	maxTokens int       // limit of the answer's tokens
	ends      []int32   // tokens that end the answer: those of the request, then the model's own
	tables    [][]int32 // blocks, by group of layers
	text      text
	done      bool

	matcher   *structured.Matcher // follows the answer; nil without a constraint
	mask      []uint64            // of the tokens that the constraint allows next
	masked    int                 // the mask is for the token with this number in the answer, from 1; 0 if it is not known
	onlyToken int32               // the only token of the mask, or -1
	complete  int                 // the constraint ends the answer when the sequence has this length; 0 if unknown

	counts sampling.Counts // only with penalties

	pool *pooling.Pool // of a request with Pooling, else nil

	sampled  int32 // the token sampled last; not in tokens until it is delivered
	lastDraw int   // index of the draw, in the last step that samples a token of the sequence

	tiers tierState

	waiting int // answers to fork when the prompt is computed (only in answer 0)
	arrived time.Time
	started time.Time // when it was first scheduled
	first   time.Time // when its first token was sampled
	last    time.Time // when its last token was sampled
}

// output returns the tokens of the answer so far.
func (q *sequence) output() []int32 { return q.tokens[q.prompt:] }

// state returns the sampling state for the token that follows the given tokens of q.
func (q *sequence) state(tokens []int32) (st sampling.State, err error) {
	st = sampling.State{Prompt: tokens[:q.prompt], Output: tokens[q.prompt:], Counts: &q.counts}
	switch {
	case q.matcher != nil:
		err = q.prepareMask(len(st.Output))
		st.Allowed = q.mask
	case len(st.Output) < q.stream.request.MinTokens:
		st.Forbidden = q.ends
	}
	return st, err
}

// outputAfter returns the text that a token completes. If the answer ends with this token, finish says why it ends,
// and reason is the value of Event.StopReason. If the answer continues, finish is "" and reason is nil. The parameter
// tokens is the length of the sequence, including this token.
func (q *sequence) outputAfter(id int32, tokens int) (text string, finish Finish, reason any) {
	r := q.stream.request
	n := tokens - q.prompt
	e := q.stream.engine
	ends := n >= r.MinTokens && slices.Contains(q.ends, id)
	var piece string
	if (!ends || r.IncludeStop) && (r.SpecialTokens || !e.config.Tokenizer.Special(id) || slices.Contains(r.ShownTokens, id)) {
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
	case q.isComplete(tokens):
		return text + q.text.rest(), FinishStop, nil
	case n >= q.maxTokens || tokens >= e.config.MaxModelLen:
		return text + q.text.rest(), FinishLength, nil
	}
	return text, "", nil
}

// grow reserves memory for the tokens and blocks of the answer, for at most maxReserved tokens. addRow calls
// it when the sequence is first scheduled, so that waiting requests do not hold this memory.
func (q *sequence) grow(blockSize int) {
	const maxReserved = 1 << 12 // tokens
	q.tokens = slices.Grow(q.tokens, min(q.maxTokens, maxReserved))
	for i := range q.tables {
		q.tables[i] = slices.Grow(q.tables[i], min(len(q.tokens)+q.maxTokens, maxReserved)/blockSize+1)
	}
}

// fork returns another answer, with the given index, to the request that q answers. q is not in the scheduler
// yet. The two answers share the memory of the prompt's tokens until the new answer gets its first token or q
// grows.
func (q *sequence) fork(index int) *sequence {
	f := *q
	f.index, f.waiting, f.tables = index, 0, make([][]int32, len(q.tables))
	f.tokens, f.text = slices.Clip(q.tokens), q.text.empty()
	f.params.Seed += uint64(index)
	f.counts = sampling.Counts{}
	if q.matcher != nil {
		f.matcher = q.matcher.Clone()
	}
	return &f
}
