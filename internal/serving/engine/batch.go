package engine

import (
	"slices"
	"time"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
)

// buildBatch fills the input of the model, s.input, from the scheduler's plan, s.plan.
func (e *Engine) buildBatch(s *step) {
	now := time.Now()
	b := &s.input.batch
	b.Tokens, b.Positions, b.SeqLens, b.Logits = b.Tokens[:0], b.Positions[:0], b.SeqLens[:0], b.Logits[:0]
	b.Placeholders, b.Adapters = b.Placeholders[:0], b.Adapters[:0]
	b.States = b.States[:0]
	b.QueryStart = append(b.QueryStart[:0], 0)
	s.rows, s.input.copies, s.input.fresh, s.drafts = s.rows[:0], s.input.copies[:0], s.input.fresh[:0], 0
	s.draws, s.last, s.input.end, s.input.prepared = s.draws[:0], 0, 0, false
	s.choices = s.choices[:0]
	for _, id := range s.plan.Preempted {
		if q := e.live[id]; q != nil {
			for g := range q.tables {
				q.tables[g] = q.tables[g][:0]
			}
		}
	}
	for _, c := range s.plan.Copies {
		s.input.copies = append(s.input.copies, kvstore.Pair{Src: c.Src, Dst: c.Dst})
		if q := e.live[c.ID]; q != nil && c.Index >= 0 && c.Index < len(q.tables[c.Group]) {
			q.tables[c.Group][c.Index] = c.Dst
		}
	}
	for i := range s.plan.Rows {
		e.addRow(s, i, now)
	}
	s.nextLogits(e.config.maxLogits())
	if len(b.Others) < len(e.config.groups)-1 {
		b.Others = make([]model.Blocks, len(e.config.groups)-1)
	}
	e.layOut(s, &b.Blocks, 0)
	for g := range b.Others {
		e.layOut(s, &b.Others[g], g+1)
	}
}

// layOut fills the block tables of a group.
func (e *Engine) layOut(s *step, b *model.Blocks, group int) {
	b.Slots, b.CommonPrefix = s.plan.Slots[group], e.commonPrefix(s.rows, group)
	b.BlockTables, b.TableStride = b.BlockTables[:0], 0
	for i := range s.rows {
		b.TableStride = max(b.TableStride, len(s.rows[i].q.tables[group]))
	}
	for i := range s.rows {
		r := &s.rows[i]
		table := r.q.tables[group]
		b.BlockTables = append(b.BlockTables, table...)
		for range b.TableStride - len(table) {
			b.BlockTables = append(b.BlockTables, 0)
		}
		if invariants.Enabled {
			size := e.config.groups[group].BlockSize
			s.input.fresh = append(s.input.fresh, table[min(len(table), (r.computed+size-1)/size):]...)
		}
	}
}

// commonPrefix returns the number of leading tokens that all rows share, in whole blocks. Each row has already computed
// these tokens, and the block tables of all rows have the same blocks for them. Attention reads these tokens once for
// all rows. commonPrefix returns 0 if there is one row, or if the group's layers have a window, chunks or states. (vLLM's
// num_common_prefix_blocks considers all running requests, including those without a row in the step.)
func (e *Engine) commonPrefix(rows []row, group int) int {
	size := e.config.groups[group].BlockSize
	if len(rows) < 2 || e.config.groups[group].Kind != kvcache.Full {
		return 0
	}
	first := rows[0].q.tables[group]
	n := rows[0].computed / size
	for _, r := range rows[1:] {
		n = min(n, r.computed/size)
		for k, id := range r.q.tables[group][:n] {
			if id != first[k] {
				n = k
				break
			}
		}
	}
	return n * size
}

// addRow adds row i of the plan to the batch. The request of the row cannot have ended, because the engine's lock has
// been held since the row was scheduled.
func (e *Engine) addRow(s *step, i int, now time.Time) {
	b, planned := &s.input.batch, &s.plan.Rows[i]
	q := e.live[planned.ID]
	computed, n := planned.NumComputedTokens, planned.NumScheduledTokens
	for g, table := range q.tables {
		start := s.plan.BlockStarts[i*len(q.tables)+g]
		if planned.Kind != sched.KindRunning {
			start = 0
		}
		q.tables[g] = append(table[:start], s.plan.RowBlocks(i, g)...)
	}
	if q.started.IsZero() {
		q.started = now
		e.offload.release(q)
		q.stream.begin(now, computed)
		for _, a := range q.stream.answers {
			a.started = now
		}
	}
	if planned.Kind == sched.KindNew {
		q.grow(e.config.BlockSize)
	}
	first, drafts := len(b.Tokens), s.plan.Drafts[s.drafts:s.drafts+planned.NumDraftTokens]
	s.drafts += len(drafts)
	placeholder := -1
	if end := computed + n - len(drafts); end <= len(q.tokens) {
		b.Tokens = append(b.Tokens, q.tokens[computed:end]...)
	} else { // the step before samples the last token
		b.Tokens = append(append(b.Tokens, q.tokens[computed:]...), 0)
		placeholder = len(b.Tokens) - 1
	}
	for _, d := range drafts {
		b.Tokens = append(b.Tokens, max(d, 0)) // -1 is padding
	}
	for p := computed; p < computed+n; p++ {
		b.Positions = append(b.Positions, int32(p))
	}
	s.rows = slices.Grow(s.rows, 1)
	unused := s.rows[:len(s.rows)+1][len(s.rows)].tokens
	r := row{tokens: unused[:0], q: q, computed: computed, last: planned.Samples, placeholder: placeholder, drafts: drafts}
	if q.pool == nil {
		s.requestLogits(&r, first, n)
	} else {
		s.requestStates(&r, first, n-len(drafts)) // the drafts of a prompt are padding
	}
	s.rows = append(s.rows, r)
	b.QueryStart = append(b.QueryStart, int32(len(b.Tokens)))
	b.SeqLens = append(b.SeqLens, int32(computed+n))
	b.Adapters = append(b.Adapters, int32(q.stream.request.Adapter))
	if r.last && q.pool == nil {
		s.report.Sampled++
	}
	if computed >= q.prompt && n == 1+len(drafts) {
		s.report.Decodes++
		s.report.Context += computed + n
	}
}

// requestLogits makes the batch compute the logits that row r needs. For each result that will be taken from these
// logits, it adds a draw to s.draws. The row has n tokens, which begin at index first of the batch.
//
// A row that computes the last token of its sequence needs the logits of the next token. If the row has drafts, it also
// needs the logits of the token after each draft. If the request wants the log probabilities of its prompt, the rows of
// its first answer also need the logits of the prompt's tokens, except the first token and those that were scored
// before a preemption.
func (s *step) requestLogits(r *row, first, n int) {
	b, q := &s.input.batch, r.q
	add := func(start, end, position int) {
		index := len(b.Logits)
		for k := start; k < end; k++ {
			b.Logits = append(b.Logits, int32(first+k))
		}
		s.draws = append(s.draws, draw{row: len(s.rows), start: index, end: len(b.Logits), position: position})
	}
	if q.params.PromptLogprobs >= 0 && r.computed < q.prompt && q.index == 0 {
		if q.stream.prompt == nil {
			q.stream.prompt = make([]Token, q.prompt)
			q.stream.prompt[0].ID = q.tokens[0]
		}
		r.scored = min(r.computed+n+1, q.prompt)
		for position := max(r.computed+1, q.stream.scored); position < r.scored; position++ {
			add(position-1-r.computed, position-r.computed, position)
		}
	}
	if r.last {
		add(n-1-len(r.drafts), n, 0)
	}
}
