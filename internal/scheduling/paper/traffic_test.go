package paper

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/testkit/servetest"
)

// Ensure that every sequence attends to its own tokens in each iteration, and every request is answered. The traffic
// has samples, beams and preemptions.
func TestSOSPTraffic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := Config{
			BlockSize:    rapid.IntRange(1, 5).Draw(t, "block"),
			NumGPUBlocks: rapid.IntRange(0, 24).Draw(t, "gpu"),
			NumCPUBlocks: rapid.IntRange(0, 30).Draw(t, "cpu"),
			Watermark:    float64(rapid.IntRange(0, 20).Draw(t, "watermark")) / 100,
		}
		config.Prefix = rapid.IntRange(0, min(30, config.NumGPUBlocks*config.BlockSize)).Draw(t, "prefix")
		limits := Limits{MaxNumBatchedTokens: rapid.IntRange(1, 60).Draw(t, "tokens"), MaxNumSeqs: rapid.IntRange(1, 8).Draw(t, "seqs")}
		s, err := NewSOSP(config, limits, rapid.Bool().Draw(t, "always swap"))
		require.NoError(t, err)
		servetest.Run(t, &servetest.System{
			Scheduler: s, Check: s.Check, Table: s.Table, Refork: s.Refork,
			BlockSize: config.BlockSize, Prompts: 40, Seqs: 3, Stuck: ErrNoFreeBlocks,
			MaxTokens: limits.MaxNumBatchedTokens, Prefix: s.memory.(*paged).prefix,
			Live: config.NumCPUBlocks >= config.NumGPUBlocks*3, // there is space for what is swapped
		})
	})
}

func TestOrcasSequencesHaveChunksAndAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.IntRange(1, 4).Draw(t, "block")
		config := OrcaConfig{
			BlockSize: block, MaxModelLen: block << rapid.IntRange(2, 5).Draw(t, "longest"),
			NumGPUBlocks: rapid.IntRange(0, 70).Draw(t, "blocks"),
			Policy:       Policy(rapid.IntRange(0, 2).Draw(t, "policy")),
		}
		limits := Limits{MaxNumBatchedTokens: rapid.IntRange(1, 60).Draw(t, "tokens"), MaxNumSeqs: rapid.IntRange(1, 8).Draw(t, "seqs")}
		s, err := NewOrca(config, limits)
		require.NoError(t, err)
		servetest.Run(t, &servetest.System{
			Scheduler: s, Check: s.Check, Refork: s.Refork, Table: s.Table,
			BlockSize: block, Prompts: 40, Seqs: 3, MaxTokens: limits.MaxNumBatchedTokens, Live: true,
		})
	})
}

func TestStaticBatchesAnswerEverybody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := StaticConfig{BatchSize: rapid.IntRange(1, 5).Draw(t, "batch"), MaxModelLen: rapid.IntRange(2, 60).Draw(t, "longest")}
		s, err := NewStatic(config)
		require.NoError(t, err)
		servetest.Run(t, &servetest.System{Scheduler: s, Check: s.Check, Prompts: 40, Seqs: 2, Live: true})
	})
}

// Ensure that Buddy.fits returns true exactly if take then succeeds for every one of the chunks.
func TestTheBuddyAllocatorStaysConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := newBuddy(rapid.IntRange(0, 200).Draw(t, "blocks"), 1<<rapid.IntRange(0, 6).Draw(t, "largest"))
		require.NoError(t, err)
		var live []Chunk
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n, count := rapid.IntRange(0, 80).Draw(t, "n"), rapid.IntRange(1, 4).Draw(t, "count")
				fits := b.fits(n, count)
				for i := range count {
					start, size, ok := b.take(n)
					require.False(t, fits && !ok)
					require.False(t, !fits && ok && i == count-1, "all were handed out")
					if ok {
						require.GreaterOrEqual(t, size, n)
						require.Less(t, size, max(2, 2*n))
						live = append(live, Chunk{start, int32(size)})
					}
				}
			},
			"free": func(t *rapid.T) {
				if len(live) > 0 {
					i := rapid.IntRange(0, len(live)-1).Draw(t, "chunk")
					b.release(live[i].Start)
					live = append(live[:i], live[i+1:]...)
				}
			},
			"": func(t *rapid.T) {
				require.NoError(t, b.Check())
				used := 0
				for _, c := range live {
					used += int(c.Size)
				}
				require.Equal(t, len(b.chunks), used+b.NumFree())
			},
		})
	})
}

func TestBuddyCheckSeesDamage(t *testing.T) {
	for name, damage := range map[string]func(b *Buddy){
		"a lost block":        func(b *Buddy) { b.free-- },
		"a chunk twice":       func(b *Buddy) { b.chunks[0].used = b.chunks[0].free },
		"two free buddies":    func(b *Buddy) { b.remove(0, 2); b.push(0, 1); b.push(2, 1) },
		"a chunk in another":  func(b *Buddy) { b.chunks[1].used = 1 },
		"a chunk not listed":  func(b *Buddy) { b.lists[2] = reqtable.NewQueues(7, 1)[0] },
		"a chunk out of line": func(b *Buddy) { b.chunks[0].free = 4 },
	} {
		t.Run(name, func(t *testing.T) {
			b, err := newBuddy(7, 4)
			require.NoError(t, err)
			require.NoError(t, b.Check())
			damage(b)
			require.Error(t, b.Check())
		})
	}
}

func TestImpossibleConfigurationsAreRefused(t *testing.T) {
	limits := Limits{MaxNumBatchedTokens: 40, MaxNumSeqs: 4}
	_, err := NewSOSP(Config{}, limits, false)
	require.ErrorIs(t, err, ErrConfig)
	_, err = NewSOSP(Config{BlockSize: 1, Watermark: -1}, limits, false)
	require.ErrorIs(t, err, ErrConfig)
	_, err = NewSOSP(Config{BlockSize: 1}, Limits{}, false)
	require.ErrorIs(t, err, ErrConfig)
	_, err = NewOrca(OrcaConfig{BlockSize: 4, MaxModelLen: 12}, limits)
	require.ErrorIs(t, err, ErrConfig, "a largest chunk of 3 blocks")
	_, err = NewStatic(StaticConfig{BatchSize: 1})
	require.ErrorIs(t, err, ErrConfig)

	s, err := NewSOSP(Config{BlockSize: 2, NumGPUBlocks: 8, Watermark: 0.5}, limits, false)
	require.NoError(t, err)
	require.NoError(t, s.Add(serve.Request{ID: 1, Prompt: 8}))
	require.ErrorIs(t, s.Add(serve.Request{ID: 1, Prompt: 8}), serve.ErrRequest)
	require.ErrorIs(t, s.Add(serve.Request{ID: 2, Prompt: 9}), serve.ErrRequest, "never admitted")
	require.ErrorIs(t, s.Add(serve.Request{ID: 2, Prompt: 1, Seqs: 5}), serve.ErrRequest)
	require.ErrorIs(t, s.Refork(&serve.Iteration{}, 2, 0, 0), serve.ErrRequest)

	o, err := NewOrca(OrcaConfig{BlockSize: 4, NumGPUBlocks: 8, MaxModelLen: 16}, limits)
	require.NoError(t, err)
	require.ErrorIs(t, o.Add(serve.Request{ID: 1, Prompt: 8}), serve.ErrRequest, "an unknown output")
	require.ErrorIs(t, o.Add(serve.Request{ID: 1, Prompt: 8, Output: 9}), serve.ErrRequest, "too long")
	require.ErrorIs(t, o.Add(serve.Request{ID: 1, Prompt: 8, Output: 8, Seqs: 3}), serve.ErrRequest, "more than there is")
	require.NoError(t, o.Add(serve.Request{ID: 1, Prompt: 8, Output: 8, Seqs: 2}))
}
