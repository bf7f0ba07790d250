package view

import (
	"bytes"
	"fmt"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/paper"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v1/adapter"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// A servingStory is a few requests in a small pool. Two schedulers serve them, or one scheduler beside equivalent
// calls of the homework's engine.
type servingStory struct {
	name, title, note string
	systems           []storySystem
	homework          []int // times of the calls in stories/beside (storyteller.step)
	requests          []storyRequest
	reforks           []storyRefork
}

// A storySystem is a scheduler with a description.
type storySystem struct {
	name, note string
	scheduler  func() (serve.Scheduler, error)
	null       int // number of null blocks
}

// A storyRequest arrives before a step. Requests with the same first tokens make prefix hits.
type storyRequest struct {
	step           int
	prompt, output int
	seqs           int
	family         int32 // requests of one family have the same first tokens
	same           int   // number of these tokens
}

// A storyRefork makes a beam a copy of another beam after a step.
type storyRefork struct{ step, request, child, parent int }

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

// underV1 returns vLLM V1 as the only scheduler of a story, with a note.
func underV1(note string) []storySystem {
	return []storySystem{{name: "vLLM V1", note: note, scheduler: storyV1, null: 1}}
}

var servingStories = []servingStory{
	{
		name: "block-table-grows", title: "A block table grows",
		note:     "Two requests get longer, token by token. Each takes a block when its last one is full, whichever is free; its block table keeps the order.",
		systems:  underV1("A block has 4 slots."),
		homework: []int{-1, 0, 10, 20, 30, 32, 40, 50, 60, 80, 85, 87},
		requests: []storyRequest{{step: 0, prompt: 6, output: 9}, {step: 3, prompt: 3, output: 6, family: 1}},
	},
	{
		name: "prefix-cache", title: "A prefix is shared, kept, and evicted",
		note: "The same beginning, computed once. vLLM finds it by its hash, also when the request that computed it is gone, until somebody needs the blocks. " +
			"The homework's engine shares only by fork, and forgets a block with its last reader.",
		systems:  underV1("Requests 1 and 2 begin with the same 8 tokens: two blocks. Request 3 needs nearly all blocks, so of the prefix that request 4 begins with only the first block is left."),
		homework: []int{-1, 0, 20, 30, 35, 45, 60, 85, 100, 125},
		requests: []storyRequest{
			{step: 0, prompt: 10, output: 4, same: 8}, {step: 2, prompt: 11, output: 3, same: 8},
			{step: 6, prompt: 41, output: 3, family: 7}, {step: 10, prompt: 10, output: 3, same: 8},
		},
	},
	{
		name: "preemption", title: "Preemption and resumption",
		note: "Three requests grow until no block is free. vLLM takes the blocks of the last one, which waits and computes its tokens again. " +
			"The homework's engine refuses the call, and its caller has to decide.",
		systems:  underV1("The last request that came is preempted."),
		homework: []int{-1, 0, 3, 10, 20, 30, 40, 50, 60, 62, 70, 80, 115, 117, 120, 130, 165},
		requests: []storyRequest{{step: 0, prompt: 11, output: 12}, {step: 0, prompt: 10, output: 12, family: 1}, {step: 1, prompt: 9, output: 10, family: 2}},
	},
	{
		name: "beams", title: "Beams that part",
		note:     "Three beams share the blocks of their prompt. A beam that is not good enough becomes a copy of a better one: it drops its blocks and shares the other's. A shared last block is copied before it is written.",
		systems:  []storySystem{{name: "vLLM (SOSP '23)", note: "The beams of request 1 are 1a, 1b and 1c.", scheduler: storySOSP}},
		homework: []int{-1, 0, 3, 6, 10, 12, 14, 30, 32, 34, 36, 85, 87, 89},
		requests: []storyRequest{{step: 0, prompt: 6, output: 9, seqs: 3}},
		reforks:  []storyRefork{{2, 1, 1, 0}, {4, 1, 2, 1}, {6, 1, 0, 2}},
	},
	{
		name: "orca-beside-paged", title: "Five requests, reserved and paged",
		note: "The same five requests in the same memory, at the same time. Orca reserves room for the longest answer there may be, in one piece; vLLM takes a block when it is needed.",
		systems: []storySystem{
			{name: "Orca (Max)", note: "Each request reserves 16 tokens: three fit.", scheduler: storyOrca},
			{name: "vLLM (SOSP '23)", note: "Blocks are taken one by one: all five run at once.", scheduler: storySOSP},
		},
		requests: []storyRequest{
			{step: 0, prompt: 5, output: 4}, {step: 0, prompt: 3, output: 6}, {step: 1, prompt: 6, output: 3}, {step: 1, prompt: 2, output: 5}, {step: 2, prompt: 4, output: 4},
		},
	},
}

// play runs the story under the rules of each system.
func (s *servingStory) play() (*Scene, error) {
	var all []clocked
	for i := range s.systems {
		c, err := s.under(&s.systems[i])
		if err != nil {
			return nil, fmt.Errorf("story %s, %s: %w", s.name, s.systems[i].name, err)
		}
		all = append(all, c)
	}
	if len(s.homework) > 0 {
		c, err := s.calls()
		if err != nil {
			return nil, fmt.Errorf("story %s: %w", s.name, err)
		}
		all = append(all, c)
	}
	return &Scene{Name: s.name, Title: s.title, Note: s.note, Recordings: beside(all...)}, nil
}

func (s *servingStory) calls() (clocked, error) {
	text, err := stories.ReadFile("stories/beside/" + s.name + ".trace")
	if err != nil {
		return clocked{}, err
	}
	r, err := Course(bytes.NewReader(text))
	if err != nil {
		return clocked{}, err
	}
	r.System, r.Note = "The homework's engine", r.Title
	if len(s.homework) != len(r.Frames) {
		return clocked{}, fmt.Errorf("%d calls at %d times", len(r.Frames), len(s.homework))
	}
	return clocked{r, s.homework}, nil
}

// under runs the story's requests on a system.
func (s *servingStory) under(system *storySystem) (clocked, error) {
	scheduler, err := system.scheduler()
	if err != nil {
		return clocked{}, err
	}
	r := &Recording{Title: s.title, System: system.name, Note: system.note, BlockSize: storyBlock, NumGPUBlocks: storyBlocks + system.null}
	if system.null > 0 {
		r.Held = NullBlock
	}
	rec, err := NewRecorder(r, scheduler, Limits{Frames: 100})
	if err != nil {
		return clocked{}, err
	}
	p := storyteller{story: s, scheduler: scheduler, rec: rec, remaining: map[int]int{}, times: []int{-1}}
	for !p.ended() {
		if err := p.step(); err != nil {
			return clocked{}, fmt.Errorf("step %d: %w", p.iteration, err)
		}
	}
	return clocked{r, p.times}, nil
}

// A storyteller plays a servingStory on one system.
type storyteller struct {
	story           *servingStory
	scheduler       serve.Scheduler
	rec             *Recorder
	it              serve.Iteration
	iteration, next int
	remaining       map[int]int // tokens still to generate, by request
	times           []int       // times of the frames
}

func (p *storyteller) ended() bool {
	return p.next == len(p.story.requests) && len(p.remaining) == 0 || p.iteration == 90
}

// step makes an iteration. On the story's clock, iteration n has the time 10 n, and requests that finish after it
// have the time 10 n + 5; the first frame is at -1. Calls of the homework's engine have times between these.
func (p *storyteller) step() error {
	for ; p.next < len(p.story.requests) && p.story.requests[p.next].step <= p.iteration; p.next++ {
		q, id := p.story.requests[p.next], p.next+1
		err := p.scheduler.Add(serve.Request{ID: id, Prompt: q.prompt, Output: q.output, Seqs: max(1, q.seqs), Tokens: q.tokens(id)})
		if err != nil {
			return err
		}
		p.remaining[id] = q.output
	}
	if err := p.scheduler.Step(&p.it); err != nil {
		return err
	}
	if p.it.Idle() { // nothing runs between requests
		p.iteration++
		return nil
	}
	seconds := 0.03 * float64(p.iteration)
	if err := p.rec.Observe(seconds, &p.it); err != nil {
		return err
	}
	p.times = append(p.times, 10*p.iteration)
	var done []int
	token := func(id int) {
		if p.remaining[id]--; p.remaining[id] == 0 {
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
		delete(p.remaining, id)
	}
	if len(answered) > 0 {
		p.times = append(p.times, 10*p.iteration+5)
	}
	err = p.rec.Finished(seconds, answered...)
	p.iteration++
	return err
}

func (p *storyteller) refork() error {
	for _, f := range p.story.reforks {
		if f.step != p.iteration {
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

// tokens returns the tokens of a request. They begin with the tokens of the request's family.
func (q *storyRequest) tokens(id int) []int32 {
	tokens := make([]int32, q.prompt+q.output)
	for i := range tokens {
		tokens[i] = int32(1000*id + i)
		if i < q.same {
			tokens[i] = 100*q.family + int32(i)
		}
	}
	return tokens
}
