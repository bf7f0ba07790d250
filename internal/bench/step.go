package bench

import (
	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/kvcache"
	"llmmemory/internal/vllm/v1/sched"
)

// A decoder runs steps in which each request decodes one token.
type decoder struct {
	s       *sched.Scheduler
	running int
	ahead   int // steps that are scheduled before the oldest is updated
	flying  int // of them, now
	step    sched.Step
	out     sched.Outcome
	counts  []int32
	tokens  []int32
	left    int // steps until the requests are at their end
}

func newDecoder(running, ahead int) *decoder {
	s, err := sched.New(sched.Config{
		MaxNumSeqs: running, MaxNumBatchedTokens: running * promptTokens, AsyncScheduling: ahead > 0,
		Cache: kvcache.Config{
			NumGPUBlocks: running*(promptTokens+outputTokens)/blockSize + 1,
			Groups:       []kvcache.Group{{Kind: kvcache.Full, BlockSize: blockSize}}, EnablePrefixCaching: true,
			Hash: blockhash.LE{}, MaxModelLen: promptTokens + outputTokens,
		},
	})
	must(err)
	d := &decoder{s: s, running: running, ahead: ahead, tokens: make([]int32, running)}
	for range running {
		d.counts = append(d.counts, 1)
	}
	return d
}

// refill replaces all requests by new ones that are through their prompts.
func (d *decoder) refill() {
	d.s.Abort(d.s.Monitor.Running(nil)...)
	for ; d.flying > 0; d.flying-- {
		must(d.s.Update(d.counts, d.tokens, &d.out))
	}
	for i := range d.running {
		_, err := d.s.Add(sched.Spec{Tokens: prompt(promptTokens, i), MaxTokens: outputTokens})
		must(err)
	}
	d.left = outputTokens - 2 - d.ahead
	for range d.ahead {
		d.schedule()
	}
	d.one()
}

func (d *decoder) one() {
	d.schedule()
	for i := range d.tokens {
		d.tokens[i] = int32(d.left + i)
	}
	must(d.s.Update(d.counts, d.tokens, &d.out))
	d.flying--
	d.left--
}

func (d *decoder) schedule() {
	must(d.s.Schedule(&d.step))
	if len(d.step.Rows) != d.running {
		panic("a request does not run")
	}
	d.flying++
}

// step schedules and updates.
func step(running int) run { return steps(running, 0) }

// steps schedules ahead of the update.
func steps(running, ahead int) run {
	d := newDecoder(running, ahead)
	d.refill()
	return func(t timer, n int) {
		for range n {
			if d.left <= 0 {
				t.StopTimer()
				d.refill()
				t.StartTimer()
			}
			d.one()
		}
	}
}
