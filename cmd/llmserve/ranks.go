package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/terminal"
)

// ranks are the processes that share a model. It is nil if this process has the whole model. Only programs built
// with the tag mpi have ranks.
var ranks *processes

// A world connects processes that were started together. Package mpi implements it.
type world interface {
	engine.Remote
	engine.Leader
	Rank() int
	Host() string
	SetLimit(time.Duration)
	Exchange(message []byte) (all [][]byte, err error) // returns the argument of each process, by rank
	End()
}

// connect returns the world that this process belongs to. It is nil in programs built without the tag mpi.
var connect func(limit time.Duration) (world, error)

// defaultLimit is how long vLLM waits for a step (VLLM_ENGINE_ITERATION_TIMEOUT_S).
const defaultLimit = time.Minute

// join sets ranks if there are several processes.
func join() error {
	if connect == nil {
		return nil
	}
	w, err := connect(defaultLimit)
	if err != nil {
		return err
	}
	if w.Size() == 1 {
		w.End()
		return nil
	}
	ranks = newProcesses(w)
	go ranks.exchange()
	return nil
}

// A stage is the progress of a process.
type stage int

const (
	started       stage = iota
	knowsModel          // its report has Facts
	loadedWeights       // it can compute steps
)

// processes is a world whose members exchange reports until all have loaded their weights. In this way, each
// process notices when another process fails or is lost.
type processes struct {
	world

	mu      sync.Mutex
	changed sync.Cond
	limit   time.Duration
	local   report
	all     stage // the stage that all have reached
}

// A report describes a process.
type report struct {
	Host    string
	Stage   stage
	Facts   []fact
	Refused string // why the process ends, or ""
	Left    bool   // the process has nothing to do, for example because it printed a help text
}

// A fact must have the same value in all processes.
type fact struct{ Name, Value string }

func newProcesses(w world) *processes {
	p := &processes{world: w, limit: defaultLimit, local: report{Host: w.Host()}}
	p.changed.L = &p.mu
	return p
}

// follow reports whether this process only computes its part of rank 0's steps.
func (p *processes) follow() bool { return p != nil && p.Rank() > 0 }

// share sets the options so that the processes share the model.
func (p *processes) share(o *modelOptions) error {
	n := p.Size()
	if n != 2 && n != 4 {
		return fmt.Errorf("%d processes were started; 1, 2 and 4 can share a model", n)
	}
	if o.workers != 1 && o.workers != n {
		return fmt.Errorf("--tensor-parallel-size is %d, and %d processes were started; leave it out", o.workers, n)
	}
	if o.limit < time.Second {
		return fmt.Errorf("--iteration-timeout is %v; it must be at least 1s", o.limit)
	}
	o.workers = n
	return nil
}

func (o *modelOptions) processes() int {
	if ranks != nil {
		return ranks.Size()
	}
	return 1
}

// follow computes this process's part of rank 0's steps, until rank 0 ends. It ignores SIGINT and SIGTERM: a signal
// that is sent to a job reaches all ranks, but rank 0 still needs the other ranks until its running requests have
// ended.
func follow(path string, o *modelOptions) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	if err := o.pooling.check(); err != nil {
		return err
	}
	l, err := prepare(path, o)
	if err != nil {
		return err
	}
	if err := l.loadWeights(o); err != nil {
		return errors.Join(err, l.close())
	}
	c := l.plan
	c.Model, c.Pool = l.workers[0].Model, l.workers[0].Pool
	return errors.Join(engine.Follow(c, ranks), l.close())
}

// agree reports the facts of this process, and waits until all other processes have reported theirs. If the facts of
// two processes differ, agree does not return: the method exchange, in its own goroutine, ends this process.
func (p *processes) agree(l *loaded, o *modelOptions) error {
	content, shape, err := l.identity()
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.limit = o.limit
	p.local.Facts = []fact{
		{"the version of llmserve", terminal.Version()}, {"the content of the weights", content}, {"the model", shape},
		{"the adapters (--lora-modules)", strings.Join(o.lora.contents, " ")},
		{"the processor's kind", runtime.GOARCH + ", " + l.kernels(o)},
		{"--block-size", fmt.Sprint(o.blockSize)}, {"--kv-cache-gb", fmt.Sprint(o.kvGB)},
		{"--max-model-len", fmt.Sprint(o.maxModelLen)}, {"--max-num-batched-tokens", fmt.Sprint(o.maxTokens)},
		{"--kv-cache-dtype", o.kvType}, {"--activation-dtype", l.activationType(o)}, {"--iteration-timeout", p.limit.String()},
	}
	p.mu.Unlock()
	p.reach(knowsModel)
	return nil
}

// reach waits until all processes have reached a stage.
func (p *processes) reach(s stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.local.Stage = s
	for p.all < s {
		p.changed.Wait()
	}
}

const interval = 50 * time.Millisecond

// exchange exchanges reports until all processes have loaded their weights. If a process reports an error, or the
// facts of two processes differ, exchange ends this process.
func (p *processes) exchange() {
	for {
		p.mu.Lock()
		message, err := json.Marshal(p.local)
		p.mu.Unlock()
		var all [][]byte
		if err == nil {
			all, err = p.Exchange(message)
		}
		reports := make([]report, len(all))
		for i := range all {
			err = errors.Join(err, json.Unmarshal(all[i], &reports[i]))
		}
		if err != nil {
			p.Abort(err)
		}
		if refused := refusal(reports); refused != "" {
			p.quit(refused)
		}
		if p.advance(reports) == loadedWeights {
			return
		}
		time.Sleep(interval)
	}
}

// refusal returns why the processes cannot continue, or "" if they can. The result is the same in all processes.
func refusal(all []report) string {
	for rank, r := range all {
		if r.Refused != "" {
			return fmt.Sprintf("rank %d on %s: %s", rank, r.Host, r.Refused)
		}
	}
	for rank, r := range all {
		if all[0].Facts == nil || r.Facts == nil {
			continue
		}
		for i, f := range r.Facts {
			if first := all[0].Facts[i]; f != first {
				return fmt.Sprintf("%s is %s on rank %d (%s), and %s on rank 0 (%s); all ranks need the same",
					f.Name, f.Value, rank, r.Host, first.Value, all[0].Host)
			}
		}
	}
	return ""
}

// quit ends this process. All processes end for the same reason, and each of them calls quit itself. Only rank 0
// prints the reason.
func (p *processes) quit(reason string) {
	p.end()
	if p.follow() {
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, "llmserve:", reason)
	os.Exit(1)
}

func (p *processes) advance(all []report) stage {
	lowest := slices.MinFunc(all, func(a, b report) int { return int(a.reached() - b.reached()) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all < knowsModel && lowest.reached() >= knowsModel {
		p.SetLimit(p.limit)
	}
	p.all = lowest.reached()
	p.changed.Broadcast()
	return p.all
}

// reached returns the stage of a process. A process that has left counts as being at the last stage.
func (r report) reached() stage {
	if r.Left {
		return loadedWeights
	}
	return r.Stage
}

// leave disconnects this process before it ends with err. If err is not nil and there was no step yet, leave makes
// all other processes end, too.
func (p *processes) leave(err error) error {
	if p == nil {
		return err
	}
	p.mu.Lock()
	stepping := p.all == loadedWeights
	p.local.Left = err == nil
	if err != nil && !stepping {
		p.local.Refused = strings.ReplaceAll(err.Error(), "\n", "; ")
		if p.local.Refused == "" {
			p.local.Refused = "ended"
		}
	}
	for p.all < loadedWeights {
		p.changed.Wait() // after a refusal, exchange ends the process meanwhile
	}
	p.mu.Unlock()
	if err != nil && !errors.Is(err, context.Canceled) {
		p.Abort(err)
	}
	p.end()
	return err
}

// end leaves the world. If leaving takes too long, because another process is lost, end ends this process.
func (p *processes) end() {
	p.mu.Lock()
	patience := max(p.limit, 10*time.Second)
	p.mu.Unlock()
	late := time.AfterFunc(patience, func() {
		fmt.Fprintf(os.Stderr, "llmserve: rank %d on %s: the other ranks have not ended for %v\n", p.Rank(), p.Host(),
			patience)
		os.Exit(1)
	})
	p.world.End()
	late.Stop()
}
