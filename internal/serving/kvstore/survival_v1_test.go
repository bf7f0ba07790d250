package kvstore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/testkit/level"
)

func group(blockSize int) kvcache.Group {
	return kvcache.Group{Kind: kvcache.Full, BlockSize: blockSize}
}

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
			if j != 0 && (j != 1+i%3 || !level.Long()) && !level.Exhaustive() {
				continue // the other types take the same way through the blocks
			}
			t.Run(fmt.Sprintf("%s %v", kind.name, d), func(t *testing.T) {
				const longest = 96
				model := randomTransformer(uint64(i), longest+16)
				config := sched.Config{
					Cache: kvcache.Config{
						NumGPUBlocks: 22, Groups: []kvcache.Group{group(8)}, EnablePrefixCaching: true, Hash: blockhash.CBOR("0"),
						MaxModelLen: longest,
					},
					Limits: sched.Limits{MaxNumSeqs: 5, MaxNumBatchedTokens: 48},
				}
				kind.change(&config, model)
				e := newV1(t, uint64(10*i+j), model, d, config)
				e.traffic(100, kind.fork)
				e.check()
				t.Logf("%d logits, %d tokens hit, %d blocks copied, %d preemptions, %d drafts rejected", e.logits, e.hits,
					e.copies, e.preempted, e.rejected)
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

// traffic adds requests during the given number of steps, and forks some of them. Many prompts have a common
// prefix. Then traffic runs steps until all requests are done.
func (e *v1) traffic(steps int, fork bool) {
	for range steps {
		if len(e.ids) < 8 && e.r.IntN(3) > 0 {
			n := 1 + e.r.IntN(60)
			tokens := make([]int32, n)
			common := e.r.IntN(n + 1)
			for i := range tokens {
				tokens[i] = int32(i % 7)
				if i >= common {
					tokens[i] = int32(e.r.IntN(20))
				}
			}
			e.add(tokens, 1+e.r.IntN(30))
		}
		if fork && e.r.IntN(3) == 0 && len(e.ids) < 8 {
			e.fork()
		}
		e.runStep()
	}
	for i := 0; len(e.ids) > 0 && i < 500; i++ {
		e.runStep()
	}
	require.Empty(e.t, e.ids)
}
