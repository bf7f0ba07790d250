package view

import (
	"fmt"

	"llmmemory/internal/paper"
	"llmmemory/internal/serve"
	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/adapter"
	"llmmemory/internal/vllm/v1/kvcache"
	"llmmemory/internal/vllm/v1/sched"
)

// A servingStory is a few requests in a small pool, under the rules of a real scheduler.
type servingStory struct {
	name, title, system, note string
	scheduler                 func() (serve.Scheduler, error)
	null                      int // blocks that are never used
	requests                  []toldRequest
	reforks                   []toldRefork
}

// A toldRequest comes before a step. Tokens that begin alike make prefix hits.
type toldRequest struct {
	step           int
	prompt, output int
	seqs           int
	family         int32 // requests of one have the same first tokens
	same           int   // how many
}

// A toldRefork makes a beam the copy of another one after a step.
type toldRefork struct{ step, request, child, parent int }

const storyBlock, storyBlocks = 4, 12

func storyV1() (serve.Scheduler, error) {
	return adapter.New(sched.Config{
		AsVLLM: true, MaxNumBatchedTokens: 64, MaxNumSeqs: 8,
		Cache: kvcache.Config{
			NumGPUBlocks: storyBlocks + 1, Groups: []kvcache.Group{{Kind: kvcache.Full, BlockSize: storyBlock}},
			EnablePrefixCaching: true, Hash: blockhash.LE{}, MaxModelLen: 48,
		},
	})
}

func storySOSP() (serve.Scheduler, error) {
	return paper.NewSOSP(paper.Config{BlockSize: storyBlock, NumGPUBlocks: storyBlocks}, paper.Limits{MaxNumBatchedTokens: 64, MaxNumSeqs: 8}, false)
}

func storyOrca() (serve.Scheduler, error) {
	return paper.NewOrca(paper.OrcaConfig{BlockSize: storyBlock, NumGPUBlocks: storyBlocks, MaxModelLen: 16, Policy: paper.Max}, paper.Limits{MaxNumBatchedTokens: 64, MaxNumSeqs: 8})
}

// five are the requests that Orca and the paged system get alike.
var five = []toldRequest{
	{step: 0, prompt: 5, output: 4}, {step: 0, prompt: 3, output: 6}, {step: 1, prompt: 6, output: 3}, {step: 1, prompt: 2, output: 5}, {step: 2, prompt: 4, output: 4},
}

var servingStories = []servingStory{
	{
		name: "block-table-grows", title: "A block table grows", system: "vLLM V1",
		note:      "A block has 4 slots. A request takes a block when its last one is full, from anywhere; its table keeps the order.",
		scheduler: storyV1, null: 1,
		requests: []toldRequest{{step: 0, prompt: 6, output: 9}, {step: 3, prompt: 3, output: 6, family: 1}},
	},
	{
		name: "prefix-cache", title: "A prefix is shared, kept, and evicted", system: "vLLM V1",
		note: "Requests 0 and 1 begin with the same 8 tokens, and share two blocks. Finished blocks stay findable until somebody needs them: " +
			"request 2 needs nearly all, so of the prefix that request 3 begins with only the first block is left.",
		scheduler: storyV1, null: 1,
		requests: []toldRequest{
			{step: 0, prompt: 10, output: 4, same: 8}, {step: 2, prompt: 11, output: 3, same: 8},
			{step: 6, prompt: 41, output: 3, family: 7}, {step: 10, prompt: 10, output: 3, same: 8},
		},
	},
	{
		name: "preemption", title: "Preemption and resumption", system: "vLLM V1",
		note:      "Three requests grow until no block is free. The last one is preempted: it loses its blocks, waits, and computes its tokens again.",
		scheduler: storyV1, null: 1,
		requests: []toldRequest{{step: 0, prompt: 11, output: 12}, {step: 0, prompt: 10, output: 12, family: 1}, {step: 1, prompt: 9, output: 10, family: 2}},
	},
	{
		name: "beams", title: "Beams that part", system: "vLLM (SOSP '23)",
		note:      "Three beams share the blocks of their prompt. A beam that is not good enough becomes a copy of a better one: it drops its blocks and shares the other's; a shared last block is copied before it is written.",
		scheduler: storySOSP,
		requests:  []toldRequest{{step: 0, prompt: 6, output: 9, seqs: 3}},
		reforks:   []toldRefork{{2, 0, 1, 0}, {4, 0, 2, 1}, {6, 0, 0, 2}},
	},
	{
		name: "orca-reserves", title: "Five requests, reserved", system: "Orca (Max)",
		note:      "Each request reserves 16 tokens in one piece, the longest answer there may be: three fit. The story paged-requests has the same five.",
		scheduler: storyOrca, requests: five,
	},
	{
		name: "paged-requests", title: "Five requests, paged", system: "vLLM (SOSP '23)",
		note:      "The five requests of the story orca-reserves: blocks are taken one by one, and all five run at once.",
		scheduler: storySOSP, requests: five,
	},
}

// play runs the story to its end.
func (s *servingStory) play() (*Recording, error) {
	scheduler, err := s.scheduler()
	if err != nil {
		return nil, err
	}
	r := &Recording{Title: s.title, System: s.system, Note: s.note, BlockSize: storyBlock, NumGPUBlocks: storyBlocks + s.null}
	rec, err := NewRecorder(r, scheduler, Limits{Frames: 100})
	if err != nil {
		return nil, err
	}
	p := storyteller{story: s, scheduler: scheduler, rec: rec, left: map[int]int{}}
	for !p.ended() {
		if err := p.step(); err != nil {
			return nil, fmt.Errorf("story %s, step %d: %w", s.name, p.at, err)
		}
	}
	return r, nil
}

// A storyteller plays a servingStory.
type storyteller struct {
	story     *servingStory
	scheduler serve.Scheduler
	rec       *Recorder
	it        serve.Iteration
	at, next  int
	left      map[int]int // tokens to generate, by request
}

func (p *storyteller) ended() bool {
	return p.next == len(p.story.requests) && len(p.left) == 0 || p.at == 90
}

// seconds is the time that a reader sees: an iteration takes 30 ms.
func (p *storyteller) seconds() float64 { return 0.03 * float64(p.at) }

func (p *storyteller) step() error {
	for ; p.next < len(p.story.requests) && p.story.requests[p.next].step <= p.at; p.next++ {
		q := p.story.requests[p.next]
		err := p.scheduler.Add(serve.Request{ID: p.next, Prompt: q.prompt, Output: q.output, Seqs: max(1, q.seqs), Tokens: q.tokens(p.next)})
		if err != nil {
			return err
		}
		p.left[p.next] = q.output
	}
	if err := p.scheduler.Step(&p.it); err != nil {
		return err
	}
	if err := p.rec.Observe(p.seconds(), &p.it); err != nil {
		return err
	}
	var done []int
	token := func(id int) {
		if p.left[id]--; p.left[id] == 0 {
			done = append(done, id)
		}
	}
	for _, f := range p.it.Prefills {
		if f.Last {
			token(f.ID)
		}
	}
	for _, d := range p.it.Decodes {
		token(d.ID)
	}
	if err := p.refork(); err != nil {
		return err
	}
	answered, err := p.scheduler.Finish(nil, done...)
	if err != nil {
		return err
	}
	for _, id := range answered {
		delete(p.left, id)
	}
	err = p.rec.Finished(p.seconds(), answered...)
	p.at++
	return err
}

func (p *storyteller) refork() error {
	for _, f := range p.story.reforks {
		if f.step != p.at {
			continue
		}
		var it serve.Iteration
		if err := p.scheduler.(serve.GroupScheduler).Refork(&it, f.request, f.child, f.parent); err != nil {
			return err
		}
		p.rec.Reforked(f.request, f.child, f.parent, it.Copies...)
	}
	return nil
}

// tokens are those of a request: the first ones are its family's.
func (q *toldRequest) tokens(id int) []int32 {
	tokens := make([]int32, q.prompt+q.output)
	for i := range tokens {
		tokens[i] = int32(1000*(id+1) + i)
		if i < q.same {
			tokens[i] = 100*q.family + int32(i)
		}
	}
	return tokens
}
