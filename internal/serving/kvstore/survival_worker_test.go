package kvstore_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
)

// A v1 is vLLM V1's scheduler with a worker. The worker gets only what a step of the scheduler contains.
type v1 struct {
	t *testing.T
	r *rand.Rand
	*sched.Scheduler
	config  sched.Config
	machine *machine
	dtype   attention.DType

	step                                sched.Step
	out                                 sched.Outcome
	ids                                 []sched.ID
	requests                            map[sched.ID]*request
	done                                []*request
	arrival                             float64
	hits                                int // tokens that were not computed because of a prefix hit
	copies, preempted, rejected, logits int
}

type request struct {
	tokens []int32 // prompt and answer
	prompt int
	logits map[int][]float32 // logits by position
	tables [][]int32
	forked bool
}

func newV1(t *testing.T, seed uint64, model *transformer, d attention.DType, config sched.Config) *v1 {
	s, err := sched.New(config)
	require.NoError(t, err)
	blockSize := config.Cache.Groups[0].BlockSize
	e := &v1{
		t: t, r: rand.New(rand.NewPCG(seed, 2)), Scheduler: s, config: config, dtype: d,
		machine:  newMachine(model, d, blockSize, config.Cache.NumGPUBlocks),
		requests: map[sched.ID]*request{},
	}
	t.Cleanup(e.machine.close)
	return e
}

func (e *v1) add(tokens []int32, answer int) {
	e.arrival++
	id, err := e.Add(sched.Spec{Tokens: tokens, MaxTokens: answer, Arrival: e.arrival, Priority: e.r.IntN(2)})
	if err != nil {
		require.ErrorIs(e.t, err, sched.ErrRequest)
		return
	}
	e.ids = append(e.ids, id)
	e.requests[id] = &request{tokens: slices.Clone(tokens), prompt: len(tokens), logits: map[int][]float32{}}
}

// runStep runs a step: first the copies, then write and attention in each layer, then sampling.
func (e *v1) runStep() {
	require.NoError(e.t, e.Schedule(&e.step))
	s := &e.step
	for _, id := range s.Preempted {
		e.preempted++
		if q := e.requests[id]; q != nil {
			q.tables = nil
		}
	}
	e.copy()
	if len(s.Rows) == 0 {
		return
	}
	b := e.batch()
	logits, err := e.machine.run(b)
	require.NoError(e.t, err)
	var counts, sampled []int32
	drafts := s.Drafts
	for i, row := range s.Rows {
		q := e.requests[row.ID]
		mine := drafts[:row.NumDraftTokens]
		drafts = drafts[row.NumDraftTokens:]
		got := e.verify(q, row, mine, logits[b.starts[i]:b.starts[i+1]])
		counts, sampled = append(counts, int32(len(got))), append(sampled, got...)
	}
	if e.r.IntN(20) == 0 && len(e.ids) > 0 {
		e.abort()
	}
	require.NoError(e.t, e.Update(counts, sampled, &e.out))
	if !dataOnly {
		require.NoError(e.t, e.Check())
	}
	e.settle(counts, sampled)
	e.draft()
}

func (e *v1) copy() {
	var pairs []kvstore.Pair
	for _, c := range e.step.Copies {
		pairs = append(pairs, kvstore.Pair{Src: c.Src, Dst: c.Dst})
		if q := e.requests[c.ID]; q != nil && c.Index >= 0 && q.tables != nil {
			q.tables[c.Group][c.Index] = c.Dst
		}
		e.copies++
	}
	require.NoError(e.t, e.machine.store.CopyBlocks(pairs))
}

func (e *v1) blockSize() int { return e.config.Cache.Groups[0].BlockSize }

func (e *v1) batch() *batch {
	s, groups := &e.step, len(e.config.Cache.Groups)
	b := &batch{starts: []int32{0}, groups: make([]memory, groups), groupOf: make([]int, e.machine.model.layers)}
	for layer := range b.groupOf {
		b.groupOf[layer] = layer % groups
	}
	stride := e.config.Cache.MaxModelLen + 8
	drafts := s.Drafts
	for i, row := range s.Rows {
		q := e.requests[row.ID]
		if row.Kind != sched.KindRunning {
			e.hits += row.NumComputedTokens
			q.tables = make([][]int32, groups)
		}
		known := row.NumScheduledTokens - row.NumDraftTokens
		b.tokens = append(b.tokens, q.tokens[row.NumComputedTokens:][:known]...)
		for _, d := range drafts[:row.NumDraftTokens] {
			b.tokens = append(b.tokens, max(0, d))
		}
		drafts = drafts[row.NumDraftTokens:]
		for p := range row.NumScheduledTokens {
			b.positions = append(b.positions, int32(row.NumComputedTokens+p))
		}
		b.starts = append(b.starts, int32(len(b.tokens)))
		b.lens = append(b.lens, int32(row.NumComputedTokens+row.NumScheduledTokens))
		for g := range groups {
			start := s.BlockStarts[i*groups+g]
			q.tables[g] = append(q.tables[g][:start:start], s.RowBlocks(i, g)...)
			first := min((row.NumComputedTokens+e.blockSize()-1)/e.blockSize(), len(q.tables[g]))
			e.machine.store.Poison(q.tables[g][first:]) // nothing in them was computed for this request
			table := make([]int32, stride)
			copy(table, q.tables[g])
			b.groups[g].tables = append(b.groups[g].tables, table...)
		}
	}
	for g := range groups {
		b.groups[g].slots, b.groups[g].stride = s.Slots[g], stride
	}
	return b
}

// verify stores the logits of a row. It returns the accepted drafts and the next token, or nothing if the row
// does not complete the prompt.
func (e *v1) verify(q *request, row sched.Row, drafts []int32, logits [][]float32) []int32 {
	known := row.NumScheduledTokens - row.NumDraftTokens
	for i := range known {
		q.logits[row.NumComputedTokens+i] = logits[i]
	}
	if row.NumComputedTokens+known < len(q.tokens) {
		return nil
	}
	got := []int32{argmax(logits[known-1])}
	for i, d := range drafts {
		if d != got[len(got)-1] {
			e.rejected += len(drafts) - i
			break
		}
		q.logits[row.NumComputedTokens+known+i] = logits[known+i]
		got = append(got, argmax(logits[known+i]))
	}
	return got
}

func (e *v1) settle(counts, sampled []int32) {
	for i, row := range e.step.Rows {
		kept := e.out.Kept[i]
		if q := e.requests[row.ID]; q != nil {
			q.tokens = append(q.tokens, sampled[:kept]...)
		}
		sampled = sampled[counts[i]:]
	}
	for _, d := range e.out.Done {
		e.forget(d.ID)
	}
}

func (e *v1) forget(id sched.ID) {
	if q := e.requests[id]; q != nil {
		e.done = append(e.done, q)
	}
	delete(e.requests, id)
	e.ids = slices.DeleteFunc(e.ids, func(o sched.ID) bool { return o == id })
}

func (e *v1) abort() {
	id := e.ids[e.r.IntN(len(e.ids))]
	e.Abort(id)
	e.forget(id)
}

func (e *v1) fork() {
	if len(e.ids) == 0 {
		return
	}
	id := e.ids[e.r.IntN(len(e.ids))]
	q := e.requests[id]
	computed, n, err := e.Monitor.NumComputedTokens(id)
	require.NoError(e.t, err)
	child := &request{tokens: slices.Clone(q.tokens), prompt: q.prompt, logits: map[int][]float32{}, forked: true}
	last := int32(-1)
	if n > q.prompt && computed < n {
		last = int32(e.r.IntN(20))
		child.tokens[n-1] = last
	}
	e.arrival++
	made, err := e.Fork(id, sched.Child{Last: last, Arrival: e.arrival})
	require.NoError(e.t, err)
	e.ids = append(e.ids, made)
	e.requests[made] = child
}

// draft guesses what comes: some right, some wrong.
func (e *v1) draft() {
	maxDrafts := e.config.NumSpeculativeTokens
	if maxDrafts == 0 {
		return
	}
	var counts, tokens []int32
	for _, id := range e.ids {
		n := e.r.IntN(maxDrafts + 1)
		counts = append(counts, int32(n))
		q := e.requests[id]
		var truth []int32
		if e.r.IntN(2) == 0 {
			truth = continuation(e.machine.model, e.dtype, q.tokens, n)
		}
		for i := range n {
			if truth != nil && e.r.IntN(4) > 0 {
				tokens = append(tokens, truth[i])
			} else {
				tokens = append(tokens, int32(e.r.IntN(20)))
			}
		}
	}
	require.NoError(e.t, e.SetDrafts(e.ids, counts, tokens))
}

func continuation(t *transformer, d attention.DType, tokens []int32, n int) []int32 {
	all := slices.Clone(tokens)
	for range n {
		logits := onePass(t, d, all)
		all = append(all, argmax(logits[len(all)-1]))
	}
	return all[len(tokens):]
}

// check compares all stored logits with one pass over contiguous memory.
func (e *v1) check() {
	for _, q := range slices.AppendSeq(e.done, maps.Values(e.requests)) {
		if len(q.logits) == 0 {
			continue
		}
		want := onePass(e.machine.model, e.dtype, q.tokens)
		for p, logits := range q.logits {
			if p >= len(q.tokens) {
				continue // a draft after a stop
			}
			requireSameBits(e.t, want[p], logits, fmt.Sprintf("position %d of %d, prompt of %d", p, len(q.tokens), q.prompt))
			e.logits++
		}
		if !q.forked {
			for i := q.prompt; i < len(q.tokens); i++ {
				require.Equal(e.t, argmax(want[i-1]), q.tokens[i])
			}
		}
	}
}

func requireSameBits(t require.TestingT, want, got []float32, name string) {
	require.Equal(t, len(want), len(got))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "other bits", "%s: logit %d is %v, in one pass %v", name, i, got[i], want[i])
		}
	}
}
