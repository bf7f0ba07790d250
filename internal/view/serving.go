package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/paper"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v1/adapter"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// A servingStory is a story about a few requests in a small pool. The page shows two schedulers that serve the
// requests, or one scheduler beside equivalent calls of the homework's engine. The stories are in
// stories/serving.json.
type servingStory struct {
	Name, Title, Note string
	Systems           []storySystem
	Homework          []int // times of the calls in stories/beside (storyteller.step)
	Requests          []storyRequest
	Reforks           []storyRefork
}

// A storySystem is a scheduler with a description.
type storySystem struct{ Name, Note string }

// A storyRequest is a request that arrives before a step. Requests that begin with the same tokens find each other's
// blocks in the prefix cache.
type storyRequest struct {
	Step, Prompt, Output int
	Seqs                 int
	Family               int32 // requests of one family have the same first tokens
	Same                 int   // number of these tokens
}

// A storyRefork says that a beam (Child) becomes a copy of another beam (Parent) after a step.
type storyRefork struct{ Step, Request, Child, Parent int }

const storyBlock, storyBlocks = 4, 12

func storyV1() (serve.Scheduler, error) {
	return adapter.New(sched.Config{
		AsVLLM: true,
		Limits: sched.Limits{MaxNumBatchedTokens: 64, MaxNumSeqs: 8},
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

var storySchedulers = map[string]func() (serve.Scheduler, error){"vLLM V1": storyV1, "vLLM (SOSP '23)": storySOSP, "Orca (Max)": storyOrca}

var servingStories = sync.OnceValue(func() (all []servingStory) {
	text, err := stories.ReadFile("stories/serving.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		panic(err) // the stories are embedded
	}
	return all
})

func (s *servingStory) play() (*Scene, error) {
	var all []clocked
	for i := range s.Systems {
		c, err := s.runOn(&s.Systems[i])
		if err != nil {
			return nil, fmt.Errorf("story %s, %s: %w", s.Name, s.Systems[i].Name, err)
		}
		all = append(all, c)
	}
	if len(s.Homework) > 0 {
		c, err := s.calls()
		if err != nil {
			return nil, fmt.Errorf("story %s: %w", s.Name, err)
		}
		all = append(all, c)
	}
	return &Scene{Name: s.Name, Title: s.Title, Note: s.Note, Recordings: alignTimes(all...)}, nil
}

func (s *servingStory) calls() (clocked, error) {
	text, err := stories.ReadFile("stories/beside/" + s.Name + ".trace")
	if err != nil {
		return clocked{}, err
	}
	r, err := Course(bytes.NewReader(text))
	if err != nil {
		return clocked{}, err
	}
	r.System, r.Note = "The homework's engine", r.Title
	if len(s.Homework) != len(r.Frames) {
		return clocked{}, fmt.Errorf("%d calls at %d times", len(r.Frames), len(s.Homework))
	}
	return clocked{r, s.Homework}, nil
}

func (s *servingStory) runOn(system *storySystem) (clocked, error) {
	scheduler, err := storySchedulers[system.Name]()
	if err != nil {
		return clocked{}, err
	}
	r := &Recording{Title: s.Title, System: system.Name, Note: system.Note, BlockSize: storyBlock, NumGPUBlocks: storyBlocks}
	if system.Name == "vLLM V1" {
		r.Held, r.NumGPUBlocks = NullBlock, storyBlocks+1
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
	iter            serve.Iteration
	iteration, next int
	remaining       map[int]int // tokens still to generate, by request
	times           []int       // times of the frames
}

func (p *storyteller) ended() bool {
	return p.next == len(p.story.Requests) && len(p.remaining) == 0 || p.iteration == 90
}

// step makes an iteration and records its frames. The frame of iteration n has the time 10 n. If requests finish after
// this iteration, they have a frame of their own, with the time 10 n + 5. An iteration in which nothing runs has no
// frame. The first frame, of the empty pool, has the time -1. If the page also shows calls of the homework's engine,
// their times (servingStory.Homework) are on the same scale.
func (p *storyteller) step() error {
	for ; p.next < len(p.story.Requests) && p.story.Requests[p.next].Step <= p.iteration; p.next++ {
		q, id := p.story.Requests[p.next], p.next+1
		err := p.scheduler.Add(serve.Request{ID: id, Prompt: q.Prompt, Output: q.Output, Seqs: max(1, q.Seqs), Tokens: q.tokens(id)})
		if err != nil {
			return err
		}
		p.remaining[id] = q.Output
	}
	if err := p.scheduler.Step(&p.iter); err != nil {
		return err
	}
	if p.iter.Idle() { // nothing runs between requests
		p.iteration++
		return nil
	}
	seconds := 0.03 * float64(p.iteration)
	if err := p.rec.Observe(seconds, &p.iter); err != nil {
		return err
	}
	p.times = append(p.times, 10*p.iteration)
	var done []int
	token := func(id int) {
		if p.remaining[id]--; p.remaining[id] == 0 {
			done = append(done, id)
		}
	}
	for _, f := range p.iter.Prefills {
		if f.Last {
			token(f.ID)
		}
	}
	for _, d := range p.iter.Decodes {
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
	for _, f := range p.story.Reforks {
		if f.Step != p.iteration {
			continue
		}
		var iter serve.Iteration
		if err := p.scheduler.(serve.GroupScheduler).Refork(&iter, f.Request, f.Child, f.Parent); err != nil {
			return err
		}
		p.rec.Reforked(f.Request, f.Child, f.Parent, iter.Copies...)
	}
	return nil
}

// tokens returns the tokens of a request. The first q.Same tokens are the same for all requests of the same family,
// so that they share a prefix.
func (q *storyRequest) tokens(id int) []int32 {
	tokens := make([]int32, q.Prompt+q.Output)
	for i := range tokens {
		tokens[i] = int32(1000*id + i)
		if i < q.Same {
			tokens[i] = 100*q.Family + int32(i)
		}
	}
	return tokens
}
