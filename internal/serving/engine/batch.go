package engine

import (
	"time"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
)

// buildBatch turns the scheduler's step into the model's batch.
func (e *Engine) buildBatch(s *step) {
	now := time.Now()
	b := &s.message.batch
	b.Tokens, b.Positions, b.SeqLens, b.Logits = b.Tokens[:0], b.Positions[:0], b.SeqLens[:0], b.Logits[:0]
	b.QueryStart = append(b.QueryStart[:0], 0)
	s.rows, s.message.copies, s.message.fresh, s.drafts = s.rows[:0], s.message.copies[:0], s.message.fresh[:0], 0
	s.draws, s.last, s.message.to = s.draws[:0], 0, 0
	for _, id := range s.plan.Preempted {
		if q := e.live[id]; q != nil {
			for g := range q.tables {
				q.tables[g] = q.tables[g][:0]
			}
		}
	}
	for _, c := range s.plan.Copies {
		s.message.copies = append(s.message.copies, kvstore.Pair{Src: c.Src, Dst: c.Dst})
		if q := e.live[c.ID]; q != nil && c.Index >= 0 && c.Index < len(q.tables[c.Group]) {
			q.tables[c.Group][c.Index] = c.Dst
		}
	}
	for i := range s.plan.Rows {
		e.addRow(s, i, now)
	}
	s.nextLogits()
	if len(b.Others) < len(e.config.groups)-1 {
		b.Others = make([]model.Blocks, len(e.config.groups)-1)
	}
	e.layOut(s, &b.Blocks, 0)
	for g := range b.Others {
		e.layOut(s, &b.Others[g], g+1)
	}
}

// layOut lays out the block tables of a group.
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
			size := e.config.BlockSize
			s.message.fresh = append(s.message.fresh, table[min(len(table), (r.from+size-1)/size):]...)
		}
	}
}

// commonPrefix is how many tokens all rows have in the same blocks, before what they
// compute now: attention reads these once for all. (vLLM's num_common_prefix_blocks asks all
// running requests, of which some may not be in this step.)
func (e *Engine) commonPrefix(rows []row, group int) int {
	size := e.config.BlockSize
	if len(rows) < 2 || e.config.groups[group].Kind != kvcache.Full {
		return 0
	}
	first := rows[0].q.tables[group]
	n := rows[0].from / size
	for i := 1; i < len(rows) && n > 0; i++ {
		table := rows[i].q.tables[group]
		n = min(n, rows[i].from/size)
		for k := range n {
			if table[k] != first[k] {
				n = k
				break
			}
		}
	}
	return n * size
}

// addRow adds row i. All requests of a step that was just scheduled are live: both happen under the lock.
func (e *Engine) addRow(s *step, i int, now time.Time) {
	b, planned := &s.message.batch, &s.plan.Rows[i]
	q := e.live[planned.ID]
	from, n := planned.NumComputedTokens, planned.NumScheduledTokens
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
		q.stream.begin(now, from)
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
	if end := from + n - len(drafts); end <= len(q.tokens) {
		b.Tokens = append(b.Tokens, q.tokens[from:end]...)
	} else { // the step before samples the last one
		b.Tokens = append(append(b.Tokens, q.tokens[from:]...), 0)
		placeholder = len(b.Tokens) - 1
	}
	for _, d := range drafts {
		b.Tokens = append(b.Tokens, max(d, 0)) // -1 is padding
	}
	for p := from; p < from+n; p++ {
		b.Positions = append(b.Positions, int32(p))
	}
	if len(s.rows) == cap(s.rows) {
		s.rows = append(s.rows, row{})[:len(s.rows)]
	}
	unused := s.rows[:len(s.rows)+1][len(s.rows)].tokens
	r := row{
		tokens: unused[:0],
		q:      q, from: from, last: planned.Samples, placeholder: placeholder, drafts: drafts,
	}
	s.wantLogits(&r, first, n)
	s.rows = append(s.rows, r)
	b.QueryStart = append(b.QueryStart, int32(len(b.Tokens)))
	b.SeqLens = append(b.SeqLens, int32(from+n))
	if r.last {
		s.report.Sampled++
	}
	if from >= q.prompt && n == 1+len(drafts) {
		s.report.Decodes++
		s.report.Context += from + n
	}
}

// wantLogits asks for the logits of a row that is about to be added, whose n tokens stand in the batch from
// first on. Log probabilities of the prompt that are known, from before a preemption, are not
// computed again.
func (s *step) wantLogits(r *row, first, n int) {
	b, q := &s.message.batch, r.q
	want := func(from, to, place int) {
		at := len(b.Logits)
		for k := from; k < to; k++ {
			b.Logits = append(b.Logits, int32(first+k))
		}
		s.draws = append(s.draws, draw{row: len(s.rows), from: at, to: len(b.Logits), place: place})
	}
	if q.params.PromptLogprobs >= 0 && r.from < q.prompt && q.index == 0 {
		if q.stream.prompt == nil {
			q.stream.prompt = make([]Token, q.prompt)
			q.stream.prompt[0].ID = q.tokens[0]
		}
		r.scored = min(r.from+n+1, q.prompt)
		for place := max(r.from+1, q.stream.scored); place < r.scored; place++ {
			want(place-1-r.from, place-r.from, place)
		}
	}
	if r.last {
		want(n-1-len(r.drafts), n, 0)
	}
}
