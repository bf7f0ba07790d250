package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"llmmemory/internal/paper"
	"llmmemory/internal/queue"
	"llmmemory/internal/serve"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/sim/workload"
)

// Config describes a run.
type Config struct {
	Server   Server
	Decoding Decoding
	Cost     *cost.Model
	Seed     uint64 // of beams and drafts

	// From and Until are the window of Result.Window, in seconds; an Until of 0
	// is the end. With Stop the run ends at Until, and what is not answered then
	// never is; else it goes on until all that arrives is answered.
	From, Until float64
	Stop        bool

	// Observe, if not nil, is called with the scheduler before the first request.
	Observe  func(serve.Scheduler) (Observer, error)
	Left     func(Departure)                          // nil; called for each request that leaves
	Progress func(now float64, arrived, answered int) // nil; called now and then
}

// ErrStuck is wrapped when requests wait and nothing will ever run, or when what
// runs never gets to a token.
var ErrStuck = errors.New("nothing can run")

// Run serves the requests of a source. It ends with the context's error if that
// is done; the result is then of what has been run.
func Run(ctx context.Context, config Config, source workload.Source) (*Result, error) {
	r, err := newRun(config, source)
	if err != nil {
		return nil, err
	}
	err = r.serve(ctx)
	return r.result(), err
}

// NewScheduler makes the scheduler of a server, as Run does.
func NewScheduler(s Server, drafts int) (serve.Scheduler, error) {
	kind, err := find(s.System)
	if err != nil {
		return nil, err
	}
	s = s.Complete()
	if max(s.Blocks, s.CPUBlocks) > mostBlocks {
		return nil, fmt.Errorf("%w: %d blocks and %d on the CPU: want at most %d", ErrConfig, s.Blocks, s.CPUBlocks, mostBlocks)
	}
	scheduler, err := kind.build(s, drafts)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, s.System, err)
	}
	return scheduler, nil
}

// mostBlocks take some 4 GB of books.
const mostBlocks = 1 << 25

// A run is a simulation under way.
type run struct {
	config    Config
	kind      *system
	scheduler serve.Scheduler
	beams     serve.GroupScheduler // nil: no beams
	drafts    serve.Speculator     // nil: no drafts
	observer  Observer             // nil: nobody looks
	source    workload.Source
	rng       *rand.Rand
	roll      roll

	now    float64
	barren int              // iterations since the last token, or since a request left
	next   workload.Request // the next to arrive
	ended  bool             // the source

	it       serve.Iteration
	reforks  serve.Iteration // copies that beams make after an iteration
	done     []int
	answered []int
	replaced []bool

	window                            window
	normalized, whole, first, between durations
	r                                 Result
}

func newRun(config Config, source workload.Source) (*run, error) {
	config.Server = config.Server.Complete()
	if config.Decoding.Samples == 0 {
		config.Decoding.Samples = 1
	}
	kind, err := find(config.Server.System)
	if err != nil {
		return nil, err
	}
	if err := config.Decoding.check(kind); err != nil {
		return nil, err
	}
	if config.Cost == nil || math.IsNaN(config.From) || math.IsNaN(config.Until) || config.Stop && config.Until <= 0 {
		return nil, fmt.Errorf("%w: a cost model: %t, from %v s until %v s", ErrConfig, config.Cost != nil, config.From, config.Until)
	}
	scheduler, err := NewScheduler(config.Server, config.Decoding.Drafts)
	if err != nil {
		return nil, err
	}
	r := &run{
		config: config, kind: kind, scheduler: scheduler, source: source,
		rng:    rand.New(rand.NewPCG(config.Seed, 0x6265616d73)),
		window: window{from: config.From, until: config.Until},
	}
	r.roll.server = &r.config.Server
	switch config.Server.System {
	case "orca-max":
		r.roll.orca, r.roll.policy = true, paper.Max
	case "orca-pow2":
		r.roll.orca, r.roll.policy = true, paper.Pow2
	case "orca-oracle":
		r.roll.orca, r.roll.policy = true, paper.Oracle
	case "fastertransformer":
	default:
		r.roll.paged = true
	}
	if config.Decoding.Beam && config.Decoding.Samples > 1 {
		r.beams = scheduler.(serve.GroupScheduler)
		r.replaced = make([]bool, config.Decoding.Samples)
	}
	if config.Decoding.Drafts > 0 {
		r.drafts = scheduler.(serve.Speculator)
	}
	if config.Observe != nil {
		if r.observer, err = config.Observe(scheduler); err != nil {
			return nil, err
		}
	}
	return r, r.pull()
}

// pull gets the next request of the source.
func (r *run) pull() error {
	switch err := r.source.Next(&r.next); {
	case errors.Is(err, io.EOF):
		r.ended = true
	case err != nil:
		return err
	}
	return nil
}

// serve runs until everything is answered, or the end.
func (r *run) serve(ctx context.Context) error {
	for turn := 1; ; turn++ {
		if r.config.Stop && r.now >= r.config.Until {
			return nil
		}
		if turn%1024 == 0 {
			if r.config.Progress != nil {
				r.config.Progress(r.now, r.r.Arrived, r.r.Answered)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if err := r.arrive(); err != nil {
			return err
		}
		if r.roll.live == 0 {
			if r.ended {
				return nil
			}
			r.now = r.next.Arrival
			continue
		}
		if err := r.iterate(); err != nil {
			return err
		}
	}
}

// arrive adds what has come by now.
func (r *run) arrive() error {
	for !r.ended && r.next.Arrival <= r.now {
		if err := r.add(); err != nil {
			return err
		}
		if err := r.pull(); err != nil {
			return err
		}
	}
	return nil
}

// add makes requests of one that came: one, or one for each answer.
func (r *run) add() error {
	each, requests := r.config.Decoding.Samples, 1
	if !r.kind.groups {
		each, requests = 1, each
	}
	index := r.r.Arrived
	r.r.Arrived++
	family := queue.None
	for sample := range requests {
		at := r.roll.arrive(&r.next, each, family)
		q := &r.roll.all[at]
		q.index = int32(index)
		if r.config.Server.usesTokens() {
			q.tokens = r.tokens(q.tokens, index, sample)
		}
		err := r.scheduler.Add(serve.Request{ID: int(at), Prompt: q.prompt, Output: q.output, Seqs: each, Tokens: q.tokens})
		if err != nil {
			refused := *q
			r.roll.leave(at)
			if !errors.Is(err, serve.ErrRequest) || sample > 0 {
				return err
			}
			r.depart(&refused, false)
			if r.r.Refused++; r.r.Refused == 1 {
				r.r.Refusal = err.Error()
			}
			return nil
		}
		family = r.roll.all[at].family
	}
	return nil
}

// tokens are those of a prompt and of one of its answers, which begin to differ
// with their first token.
func (r *run) tokens(dst []int32, index, sample int) []int32 {
	dst = workload.Tokens(dst, &r.next, index)
	for i := r.next.Prompt; i < len(dst) && sample > 0; i++ {
		dst[i] ^= int32(sample) << 20
	}
	return dst
}

// iterate runs one iteration.
func (r *run) iterate() error {
	if err := r.scheduler.Step(&r.it); err != nil {
		return fmt.Errorf("%s at %.3f s: %w", r.kind.name, r.now, err)
	}
	if r.observer != nil {
		if err := r.observer.Observe(r.now, &r.it); err != nil {
			return err
		}
	}
	if r.it.Idle() {
		return fmt.Errorf("%w: %d prompts wait for ever in %s at %.3f s", ErrStuck, r.roll.live, r.kind.name, r.now)
	}
	for _, id := range r.it.Ignored {
		r.drop(int32(id))
	}
	seconds := r.config.Cost.Seconds(r.work())
	if r.drafts != nil && len(r.it.Decodes) > 0 {
		seconds += r.config.Decoding.DraftTime
	}
	r.r.Iterations++
	r.measure(seconds)
	r.now += seconds
	if err := r.generate(); err != nil {
		return err
	}
	if r.beams != nil {
		if err := r.refork(); err != nil {
			return err
		}
	}
	return r.finish()
}

// work is what the iteration costs, and what it has in memory.
func (r *run) work() cost.Work {
	it := &r.it
	var w cost.Work
	for _, p := range it.Preempted {
		r.roll.setResident(&r.roll.all[p.ID], false)
		if p.Swapped {
			r.r.Swapped++
		} else {
			r.r.Recomputed++
		}
	}
	for i := range it.Prefills {
		p := &it.Prefills[i]
		q := &r.roll.all[p.ID]
		end := p.Start + p.Tokens
		r.roll.setResident(q, true)
		r.roll.setLength(q, min(end, q.prompt+q.output))
		computed := p.Tokens - p.Cached
		w.Prompt += computed
		w.PromptContext += pairs(end) - pairs(end-computed)
		r.r.Hits += p.Cached
		if p.Last {
			w.Seqs += p.Seqs
		}
	}
	r.r.Prompted += w.Prompt
	for i := range it.Decodes {
		d := &it.Decodes[i]
		q := &r.roll.all[d.ID]
		r.roll.setResident(q, true)
		r.roll.setLength(q, min(d.Context, q.prompt+q.output))
		w.Seqs += d.Seqs
		w.Context += d.Context * d.Seqs
		w.Prompt += d.Drafts
		w.PromptContext += pairs(d.Context+d.Drafts) - pairs(d.Context)
	}
	w.SwapBlocks = len(it.SwapOut) + len(it.SwapIn)
	w.Swaps = w.SwapBlocks // vLLM makes a transfer of each block, neighbours or not
	w.CopyBlocks = len(it.Copies) + len(r.reforks.Copies)
	r.reforks.Copies = r.reforks.Copies[:0]
	r.r.SwapBlocks += w.SwapBlocks
	r.r.CopyBlocks += w.CopyBlocks
	return w
}

// pairs is how many tokens the first n tokens of a sequence attend to.
func pairs(n int) int64 { return int64(n) * int64(n+1) / 2 }

// measure adds the iteration to the window.
func (r *run) measure(seconds float64) {
	w, l := &r.window, &r.roll
	if !w.within(r.now) {
		return
	}
	w.n++
	w.seconds += seconds
	w.requests += float64(l.requests)
	w.sequences += float64(l.sequences)
	w.waiting += float64(l.live - l.requests)
	slots := float64(r.config.Server.Blocks * r.config.Server.BlockSize)
	switch {
	case l.orca:
		w.tokens += float64(l.tokens) / slots
		w.reservation += float64(l.coming) / slots
		w.internal += float64(l.never) / slots
	case l.paged:
		u := r.scheduler.Usage()
		used := u.Used * r.config.Server.BlockSize
		ragged := min(l.ragged, used)
		w.tokens += float64(used-ragged) / slots
		w.internal += float64(ragged) / slots
		if u.Used > 0 {
			w.sharing += float64(u.Logical) / float64(u.Used)
			w.shared++
		}
	}
}

// generate gives every sequence its token, and notes who is complete.
func (r *run) generate() error {
	r.done = r.done[:0]
	before := r.r.Generated
	for i := range r.it.Prefills {
		if p := &r.it.Prefills[i]; p.Last {
			r.token(p.ID, 1)
		}
	}
	for i := range r.it.Decodes {
		d := &r.it.Decodes[i]
		n := 1
		if d.Drafts > 0 {
			n += r.accepted(d)
		}
		r.token(d.ID, n)
	}
	return r.advance(r.r.Generated > before || len(r.it.Ignored) > 0)
}

// advance notices requests that preempt each other for ever, as V0's chunked
// prompts do when each takes all blocks and needs one more (vllm-v0 §8). A prompt
// that is computed token by token gets to its end before.
func (r *run) advance(further bool) error {
	if r.barren++; further {
		r.barren = 0
	}
	if r.barren > 4*(r.config.Server.MaxLen+1024) {
		return fmt.Errorf("%w: %d prompts take memory from each other for ever in %s at %.3f s: %d iterations without a token; give it more blocks",
			ErrStuck, r.roll.live, r.kind.name, r.now, r.barren)
	}
	return nil
}

// accepted is how many drafts of a decode are right, up to the answer's end.
func (r *run) accepted(d *serve.Decode) int {
	q := &r.roll.all[d.ID]
	n := 0
	for n < d.Drafts && q.generated+1+n < q.output && r.rng.Float64() < r.config.Decoding.Accept {
		n++
	}
	if n > 0 {
		if err := r.drafts.Generated(d.ID, n+1); err != nil {
			panic("sim: " + err.Error()) // it is in the step
		}
	}
	return n
}

func (r *run) token(id, n int) {
	q := &r.roll.all[id]
	if q.generated == 0 {
		q.first = r.now
	}
	q.generated += n
	r.r.Generated += n * q.seqs
	if q.generated == q.output {
		r.done = append(r.done, id)
	}
}

// finish reports those that are complete.
func (r *run) finish() error {
	if len(r.done) == 0 {
		return nil
	}
	var err error
	if r.answered, err = r.scheduler.Finish(r.answered[:0], r.done...); err != nil {
		return err
	}
	for _, id := range r.answered {
		r.answer(int32(id))
	}
	if r.observer != nil {
		return r.observer.Finished(r.now, r.answered...)
	}
	return nil
}

// answer takes a request that has left the system out of the books, and
// measures it if it was the last one of its family.
func (r *run) answer(at int32) {
	q := r.roll.all[at]
	dropped := r.roll.all[q.family].dropped
	if !r.roll.leave(at) {
		return
	}
	if dropped {
		r.r.Dropped++
		r.depart(&q, false)
		return
	}
	r.r.Answered++
	seconds := r.now - q.arrival
	r.normalized.add(seconds / float64(q.output))
	r.whole.add(seconds)
	r.first.add(q.first - q.arrival)
	r.depart(&q, true)
	if q.output > 1 {
		r.between.add((r.now - q.first) / float64(q.output-1))
	}
}

// drop takes a request out of the books that its system will never run.
func (r *run) drop(at int32) {
	r.roll.all[r.roll.all[at].family].dropped = true
	q := r.roll.all[at]
	if r.roll.leave(at) {
		r.r.Dropped++
		r.depart(&q, false)
	}
}

// depart tells that a request has left.
func (r *run) depart(q *request, answered bool) {
	if r.config.Left != nil {
		r.config.Left(Departure{Index: int(q.index), Arrival: q.arrival, First: q.first, Done: r.now, Output: q.output, Answered: answered})
	}
}

// refork lets beams die and survive.
func (r *run) refork() error {
	r.reforks.Copies = r.reforks.Copies[:0]
	for i := range r.it.Prefills {
		if err := r.reforkOne(r.it.Prefills[i].ID); err != nil {
			return err
		}
	}
	for i := range r.it.Decodes {
		if err := r.reforkOne(r.it.Decodes[i].ID); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) reforkOne(id int) error {
	if q := &r.roll.all[id]; q.generated == q.output {
		return nil
	}
	survivors := 0
	for k := range r.replaced {
		r.replaced[k] = r.rng.Float64() < r.config.Decoding.Replace
		if !r.replaced[k] {
			survivors++
		}
	}
	if survivors == 0 {
		r.replaced[r.rng.IntN(len(r.replaced))] = false
		survivors = 1
	}
	for child := range r.replaced {
		if !r.replaced[child] {
			continue
		}
		nth := r.rng.IntN(survivors)
		for parent := range r.replaced {
			if r.replaced[parent] {
				continue
			}
			if nth == 0 {
				copies := len(r.reforks.Copies)
				if err := r.beams.Refork(&r.reforks, id, child, parent); err != nil {
					return err
				}
				if r.observer != nil {
					r.observer.Reforked(id, child, parent, r.reforks.Copies[copies:]...)
				}
				break
			}
			nth--
		}
	}
	return nil
}

func (r *run) result() *Result {
	r.r.Seconds = r.now
	r.r.Normalized, r.r.EndToEnd = r.normalized.spread(), r.whole.spread()
	r.r.First, r.r.Between = r.first.spread(), r.between.spread()
	r.r.Window = r.window.average()
	return &r.r
}
