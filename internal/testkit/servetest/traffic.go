package servetest

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/serve"
)

// A System is a scheduler under test.
type System struct {
	serve.Scheduler
	Check func() error
	Table func(id, sequence int) []int32 // nil if there is no memory to check

	BlockSize int
	MaxTokens int
	Window    int     // tokens that are attended to; 0 means all
	Prompts   int     // tokens of the longest prompt
	Seqs      int     // the largest number of sequences of a request
	Shared    bool    // requests have common beginnings
	Prefix    []int32 // blocks of a prefix of all requests
	Stuck     error   // Step may fail with this error

	Refork func(it *serve.Iteration, id, child, parent int) error // nil without beams
	Live   bool                                                   // every accepted request must finish
	Worker Worker                                                 // nil means a Memory
}

// traffic is a System under test, together with what the test knows about the requests that it has sent.
type traffic struct {
	*System
	memory Worker
	live   map[int]*answer
	next   int
	it     serve.Iteration
}

type answer struct {
	prompt, output int
	seqs           []*sample
	finished       bool // but perhaps not yet answered
}

type sample struct {
	*Sequence
	length int // tokens of the prompt and generated so far
}

const answerTokens = 12 // tokens of the longest answer

// Run sends random requests to the system and checks it after each operation.
func Run(t *rapid.T, s *System) {
	x := &traffic{System: s, memory: s.Worker, live: map[int]*answer{}}
	if s.Worker == nil {
		x.memory = NewMemory(max(1, s.BlockSize))
	}
	prefix := make([]int32, len(s.Prefix)*s.BlockSize)
	x.begin(prefix)
	require.NoError(t, x.memory.Write(s.Prefix, newSequence(prefix), 0, len(prefix)))
	t.Repeat(map[string]func(*rapid.T){
		"add":   x.add,
		"step":  x.step,
		"step2": x.step,
		"abort": x.abort,
		"": func(t *rapid.T) {
			require.NoError(t, s.Check())
			u := s.Usage()
			require.LessOrEqual(t, u.Used, u.Blocks)
		},
	})
	x.drain(t)
}

func (x *traffic) add(t *rapid.T) {
	prompt := rapid.IntRange(1, x.Prompts).Draw(t, "prompt")
	a := &answer{prompt: prompt, output: rapid.IntRange(1, answerTokens).Draw(t, "output")}
	all := x.content(t, prompt+a.output)
	n := rapid.IntRange(1, max(1, x.Seqs)).Draw(t, "seqs")
	for k := range n {
		tokens := slices.Clone(all)
		for i := prompt; k > 0 && i < len(tokens); i++ {
			tokens[i] += int32(1000 * k)
		}
		a.seqs = append(a.seqs, &sample{Sequence: newSequence(tokens), length: prompt})
	}
	used := x.Usage().Used
	err := x.Add(serve.Request{ID: x.next, Prompt: prompt, Output: a.output, Seqs: n, Tokens: all})
	require.Equal(t, used, x.Usage().Used)
	if err != nil {
		require.ErrorIs(t, err, serve.ErrRequest)
		return
	}
	require.ErrorIs(t, x.Add(serve.Request{ID: x.next, Prompt: prompt, Output: a.output, Seqs: n, Tokens: all}), serve.ErrRequest, "twice")
	x.live[x.next] = a
	x.next++
}

// content returns the tokens of a request and its answer. Each request has tokens of its own; if Shared is set, they
// may follow one of two common beginnings, so that there are prefix hits.
func (x *traffic) content(t *rapid.T, n int) []int32 {
	tokens := make([]int32, n)
	common := 0
	var beginning int32
	if x.Shared {
		common = rapid.IntRange(0, n).Draw(t, "same")
		beginning = -rapid.Int32Range(1, 2).Draw(t, "beginning")
	}
	for i := range tokens {
		tokens[i] = int32(x.next)
		if i < common {
			tokens[i] = beginning
		}
	}
	x.begin(tokens)
	return tokens
}

func (x *traffic) begin(tokens []int32) {
	for i := range min(len(tokens), len(x.Prefix)*x.BlockSize) {
		tokens[i] = math.MinInt32
	}
}

func (x *traffic) step(t *rapid.T) {
	if err := x.Step(&x.it); err != nil {
		require.True(t, x.Stuck != nil && errors.Is(err, x.Stuck), "%v", err)
		require.True(t, x.it.Empty())
	}
	require.NoError(t, x.Check())
	for _, id := range x.it.Ignored {
		require.Contains(t, x.live, id)
		delete(x.live, id)
	}
	if len(x.it.Prefills) > 0 && x.MaxTokens > 0 {
		require.LessOrEqual(t, x.it.Tokens, x.MaxTokens)
	}
	x.memory.Apply(&x.it)
	x.write(t)
	x.read(t)
	x.generate(t)
}

func (x *traffic) write(t *rapid.T) {
	seen := map[int]bool{}
	for _, p := range x.it.Prefills {
		a := x.live[p.ID]
		require.False(t, a == nil || seen[p.ID], "request %d is not there, or twice in an iteration", p.ID)
		seen[p.ID] = true
		require.Less(t, p.Cached, p.Tokens, "nothing is left to compute")
		if x.Table == nil {
			continue
		}
		for k, q := range a.seqs {
			require.True(t, p.Start+p.Tokens <= q.length && p.Last == (p.Start+p.Tokens == q.length))
			require.NoError(t, x.memory.Read(x.Table(p.ID, k), q.Sequence, p.Start, p.Start+p.Cached), "a hit of request %d", p.ID)
			require.NoError(t, x.memory.Write(x.Table(p.ID, k), q.Sequence, p.Start+p.Cached, p.Start+p.Tokens))
		}
	}
	for _, d := range x.it.Decodes {
		a := x.live[d.ID]
		require.False(t, a == nil || seen[d.ID], "request %d is not there, or twice in an iteration", d.ID)
		seen[d.ID] = true
		if x.Table == nil {
			continue
		}
		for k, q := range a.seqs {
			require.Equal(t, q.length, d.Context)
			require.NoError(t, x.memory.Write(x.Table(d.ID, k), q.Sequence, q.length-1, q.length))
		}
		require.Equal(t, len(a.seqs), d.Seqs)
	}
}

// read checks what attention reads after everything is written.
func (x *traffic) read(t *rapid.T) {
	if x.Table == nil {
		return
	}
	check := func(id, end int) {
		start := 0
		if x.Window > 0 {
			start = max(0, end-x.Window)
		}
		for k, q := range x.live[id].seqs {
			require.NoError(t, x.memory.Read(x.Table(id, k), q.Sequence, start, end), "request %d, sequence %d", id, k)
		}
	}
	for _, p := range x.it.Prefills {
		check(p.ID, p.Start+p.Tokens)
	}
	for _, d := range x.it.Decodes {
		check(d.ID, d.Context)
	}
}

func (x *traffic) generate(t *rapid.T) {
	var done []int
	token := func(id int) {
		a := x.live[id]
		complete := true
		for _, q := range a.seqs {
			q.length = min(q.length+1, a.prompt+a.output)
			complete = complete && q.length == a.prompt+a.output
		}
		if complete && !a.finished {
			a.finished = true
			done = append(done, id)
		}
	}
	for _, p := range x.it.Prefills {
		if p.Last {
			token(p.ID)
		}
	}
	for _, d := range x.it.Decodes {
		token(d.ID)
	}
	slices.Reverse(done) // the order does not matter
	x.finish(t, done)
	x.refork(t)
}

func (x *traffic) finish(t *rapid.T, ids []int) {
	answered, err := x.Finish(nil, ids...)
	require.NoError(t, err)
	require.NoError(t, x.Check())
	for _, id := range answered {
		require.True(t, x.live[id].finished)
		delete(x.live, id)
	}
	if len(ids) > 0 && x.live[ids[0]] == nil {
		_, err := x.Finish(nil, ids[0])
		require.ErrorIs(t, err, serve.ErrRequest, "twice")
	}
}

func (x *traffic) abort(t *rapid.T) {
	if id, a := x.pick(t); a != nil && !a.finished {
		a.finished = true
		x.finish(t, []int{id})
	}
}

func (x *traffic) pick(t *rapid.T) (int, *answer) {
	if len(x.live) == 0 {
		return 0, nil
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(x.live))).Draw(t, "request")
	return id, x.live[id]
}

func (x *traffic) refork(t *rapid.T) {
	if x.Refork == nil || len(x.it.Decodes) == 0 {
		return
	}
	id := x.it.Decodes[0].ID
	a := x.live[id]
	if a == nil || len(a.seqs) < 2 || !rapid.Bool().Draw(t, "refork") {
		return
	}
	var copies serve.Iteration
	require.NoError(t, x.Refork(&copies, id, 1, 0))
	x.memory.Apply(&copies)
	child, parent := a.seqs[1], a.seqs[0]
	tokens := slices.Clone(child.Tokens)
	copy(tokens, parent.Tokens[:parent.length-1]) // its next token is different
	child.Sequence, child.length = newSequence(tokens), parent.length
}

// drain runs until nothing is left.
func (x *traffic) drain(t *rapid.T) {
	steps := 0
	for ; len(x.live) > 0 && steps < 3000; steps++ {
		x.step(t)
		require.NoError(t, x.Check())
		if x.it.Idle() {
			break // the rest waits forever
		}
	}
	if x.Live {
		require.Empty(t, x.live, "after %d iterations", steps)
	}
	require.LessOrEqual(t, len(x.Prefix), x.Usage().Used)
	if len(x.live) == 0 && x.Window == 0 && !x.Shared {
		require.Zero(t, x.Usage().Logical)
	}
}
