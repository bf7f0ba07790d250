package survival

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/attention"
	"llmmemory/internal/kvstore"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/kvcache"
	"llmmemory/internal/vllm/v1/sched"
)

// A v1 is vLLM V1's scheduler and a worker that knows only what its steps say.
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

// A request is what the worker knows of one.
type request struct {
	tokens []int32 // prompt and answer
	prompt int
	said   map[int][]float32 // logits by position
	tables [][]int32
	forked bool
}

func newV1(t *testing.T, seed uint64, model *transformer, d attention.DType, config sched.Config) *v1 {
	s, err := sched.New(config)
	require.NoError(t, err)
	blockSize := config.Cache.Groups[0].BlockSize
	e := &v1{
		t: t, r: rand.New(rand.NewPCG(seed, 2)), Scheduler: s, config: config, dtype: d,
		machine:  newMachine(model, d, blockSize, config.Cache.NumGPUBlocks, 0),
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
	e.requests[id] = &request{tokens: slices.Clone(tokens), prompt: len(tokens), said: map[int][]float32{}}
}

// one runs a step: the copies, then write and attend in each layer, then the
// sampled tokens.
func (e *v1) one() {
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

// batch is what the model computes in the step.
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

// verify notes what was said, and returns the drafts that were right and the next
// token; nothing for a prompt that is not complete.
func (e *v1) verify(q *request, row sched.Row, drafts []int32, logits [][]float32) []int32 {
	known := row.NumScheduledTokens - row.NumDraftTokens
	for i := range known {
		q.said[row.NumComputedTokens+i] = logits[i]
	}
	if row.NumComputedTokens+known < len(q.tokens) {
		return nil
	}
	got := []int32{most(logits[known-1])}
	for i, d := range drafts {
		if d != got[len(got)-1] {
			e.rejected += len(drafts) - i
			break
		}
		q.said[row.NumComputedTokens+known+i] = logits[known+i]
		got = append(got, most(logits[known+i]))
	}
	return got
}

// settle appends what counts.
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

// fork makes a child that goes on with another last token.
func (e *v1) fork() {
	if len(e.ids) == 0 {
		return
	}
	id := e.ids[e.r.IntN(len(e.ids))]
	q := e.requests[id]
	computed, n, err := e.NumComputedTokens(id)
	require.NoError(e.t, err)
	child := &request{tokens: slices.Clone(q.tokens), prompt: q.prompt, said: map[int][]float32{}, forked: true}
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
	most := e.config.NumSpeculativeTokens
	if most == 0 {
		return
	}
	var counts, tokens []int32
	for _, id := range e.ids {
		n := e.r.IntN(most + 1)
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

// continuation is what the model would say next.
func continuation(t *transformer, d attention.DType, tokens []int32, n int) []int32 {
	all := slices.Clone(tokens)
	for range n {
		logits := onePass(t, d, all)
		all = append(all, most(logits[len(all)-1]))
	}
	return all[len(tokens):]
}

// check compares everything that was said with one pass over contiguous memory.
func (e *v1) check() {
	for _, q := range append(e.done, values(e.requests)...) {
		if len(q.said) == 0 {
			continue
		}
		want := onePass(e.machine.model, e.dtype, q.tokens)
		for p, logits := range q.said {
			if p >= len(q.tokens) {
				continue // a draft after a stop
			}
			requireSameBits(e.t, want[p], logits, fmt.Sprintf("position %d of %d, prompt of %d", p, len(q.tokens), q.prompt))
			e.logits++
		}
		if !q.forked {
			for i := q.prompt; i < len(q.tokens); i++ {
				require.Equal(e.t, most(want[i-1]), q.tokens[i])
			}
		}
	}
}

func values(m map[sched.ID]*request) []*request {
	var list []*request
	for _, q := range m {
		list = append(list, q)
	}
	return list
}

func requireSameBits(t require.TestingT, want, got []float32, what string) {
	require.Equal(t, len(want), len(got))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "other bits", "%s: logit %d is %v, in one pass %v", what, i, got[i], want[i])
		}
	}
}

func group(blockSize int) kvcache.Group {
	return kvcache.Group{Kind: kvcache.Full, BlockSize: blockSize}
}

// Kinds of traffic: each is a configuration of the scheduler and of the model.
var kinds = []struct {
	name   string
	change func(c *sched.Config, t *transformer)
	fork   bool
}{
	{"plain", func(*sched.Config, *transformer) {}, true},
	{"priority", func(c *sched.Config, _ *transformer) { c.Policy = sched.Priority }, true},
	{"drafts", func(c *sched.Config, _ *transformer) { c.NumSpeculativeTokens, c.NumLookaheadTokens = 3, 3 }, false},
	{"drafts, blocks returned", func(c *sched.Config, _ *transformer) {
		c.NumSpeculativeTokens, c.NumLookaheadTokens, c.ReturnDrafts = 3, 3, true
	}, false},
	{"window", func(c *sched.Config, t *transformer) {
		c.Cache.Groups[0] = kvcache.Group{Kind: kvcache.SlidingWindow, BlockSize: 8, Window: 20}
		c.Cache.NumGPUBlocks = 12
		t.windows = []int{20, 20}
	}, false},
	{"full and window", func(c *sched.Config, t *transformer) {
		c.Cache.Groups = append(c.Cache.Groups, kvcache.Group{Kind: kvcache.SlidingWindow, BlockSize: 8, Window: 20})
		c.Cache.NumGPUBlocks *= 2
		t.windows = []int{0, 20}
	}, false},
	{"all of the logits' changes", func(_ *sched.Config, t *transformer) {
		t.alibi, t.sinks, t.softCap = []float32{.5, .2, .1, .05}, []float32{1, 0, -1, 2}, 5
	}, true},
}

func TestEveryLogitSurvivesV1(t *testing.T) {
	for i, kind := range kinds {
		for j, d := range []attention.DType{attention.F32, attention.F16, attention.Int8, attention.E4M3} {
			if j != 0 && (j != 1+i%3 || testing.Short()) && !level.Long() {
				continue // the other types take the same way through the blocks
			}
			t.Run(fmt.Sprintf("%s %v", kind.name, d), func(t *testing.T) {
				const longest = 96
				model := randomTransformer(uint64(i), longest+16)
				config := sched.Config{
					Cache: kvcache.Config{
						NumGPUBlocks: 22, Groups: []kvcache.Group{group(8)}, EnablePrefixCaching: true, Hash: blockhash.CBOR("0"), MaxModelLen: longest,
					},
					MaxNumSeqs: 5, MaxNumBatchedTokens: 48,
				}
				kind.change(&config, model)
				e := newV1(t, uint64(10*i+j), model, d, config)
				e.traffic(150, kind.fork)
				e.check()
				t.Logf("%d logits, %d tokens hit, %d blocks copied, %d preemptions, %d drafts rejected", e.logits, e.hits, e.copies, e.preempted, e.rejected)
				if dataOnly {
					return
				}
				require.Positive(t, e.hits)
				require.Positive(t, e.preempted)
				require.True(t, !kind.fork || e.copies > 0)
				require.True(t, config.NumSpeculativeTokens == 0 || e.rejected > 0)
			})
		}
	}
}

// traffic comes and goes; prompts begin like others.
func (e *v1) traffic(steps int, fork bool) {
	for range steps {
		if len(e.ids) < 8 && e.r.IntN(3) > 0 {
			n := 1 + e.r.IntN(60)
			tokens := make([]int32, n)
			same := e.r.IntN(n + 1)
			for i := range tokens {
				tokens[i] = int32(i % 7)
				if i >= same {
					tokens[i] = int32(e.r.IntN(20))
				}
			}
			e.add(tokens, 1+e.r.IntN(30))
		}
		if fork && e.r.IntN(3) == 0 && len(e.ids) < 8 {
			e.fork()
		}
		e.one()
	}
	for i := 0; len(e.ids) > 0 && i < 500; i++ {
		e.one()
	}
	require.Empty(e.t, e.ids)
}

// The answer is known beforehand, without running any model: after a token, what
// stood after it earlier in the prompt.
func TestWhatStoodInThePromptIsRecalledV1(t *testing.T) {
	const longest = 256
	model := recallTransformer(longest + 16)
	config := sched.Config{
		Cache: kvcache.Config{
			NumGPUBlocks: 30, Groups: []kvcache.Group{group(16)}, EnablePrefixCaching: true, Hash: blockhash.CBOR("0"), MaxModelLen: longest,
		},
		MaxNumSeqs: 6, MaxNumBatchedTokens: 100,
	}
	e := newV1(t, 5, model, attention.F16, config)
	common := e.r.Perm(256)
	for i := range 40 {
		e.add(recallPrompt(e.r, common, 20+e.r.IntN(100)), 5+e.r.IntN(60))
		if i%2 == 0 {
			e.one()
		}
	}
	for i := 0; len(e.ids) > 0 && i < 2000; i++ {
		e.one()
	}
	require.Empty(t, e.ids)
	require.Positive(t, e.hits)
	require.Positive(t, e.preempted)
	words := 0
	for _, q := range e.done {
		requireRecalled(t, q.tokens, q.prompt)
		words += len(q.tokens) - q.prompt
	}
	t.Logf("%d tokens recalled, %d tokens hit, %d preemptions", words, e.hits, e.preempted)
	require.Greater(t, words, 200)
}

// recallPrompt is different tokens, those of others for a while, and one of them
// again.
func recallPrompt(r *rand.Rand, common []int, n int) []int32 {
	order := slices.Clone(common)
	from := r.IntN(n)
	r.Shuffle(256-from, func(i, j int) { order[from+i], order[from+j] = order[from+j], order[from+i] })
	prompt := make([]int32, n)
	for i := range prompt {
		prompt[i] = int32(order[i])
	}
	return append(prompt, prompt[r.IntN(n-1)])
}

// requireRecalled says that each token of an answer is what followed the token
// before it in the prompt.
func requireRecalled(t require.TestingT, tokens []int32, prompt int) {
	next := map[int32]int32{}
	for i := range prompt - 1 {
		next[tokens[i]] = tokens[i+1]
	}
	for i := prompt; i < len(tokens); i++ {
		require.Equal(t, next[tokens[i-1]], tokens[i], "token %d after a prompt of %d", i, prompt)
	}
}
