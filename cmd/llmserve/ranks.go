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
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/terminal"
)

// ranks are the processes that have a part of the model each; nil: this one has all of it. Only the program
// that is built with the tag mpi has any.
var ranks *processes

// A world joins processes that were started together. It is that of package mpi.
type world interface {
	engine.Remote
	engine.Leader
	Rank() int
	Host() string
	SetLimit(time.Duration)
	Exchange(own []byte) (all [][]byte, err error) // what each of them passes, by rank
	End()
}

// connect returns the world; nil: this program has none.
var connect func(limit time.Duration) (world, error)

// defaultLimit is how long vLLM waits for a step (VLLM_ENGINE_ITERATION_TIMEOUT_S).
const defaultLimit = time.Minute

// join sets ranks if there are several.
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

// A stage is how far a process has come.
type stage int

const (
	started       stage = iota
	knowsModel          // and which flags it has
	loadedWeights       // steps may be sent to it
)

// processes are a world whose members exchange their progress until all have loaded their weights, so that
// each notices when another one refuses or is lost.
type processes struct {
	world

	mu      sync.Mutex
	changed sync.Cond
	limit   time.Duration
	own     report
	all     stage // that all have reached
}

// A report is what a process says of itself.
type report struct {
	Host    string
	Stage   stage
	Facts   []fact
	Refused string // why it ends; empty: it does not
	Left    bool   // it has nothing to do: it has printed a help text, perhaps
}

// A fact is what all processes must have the same of.
type fact struct{ Name, Value string }

func newProcesses(w world) *processes {
	p := &processes{world: w, limit: defaultLimit, own: report{Host: w.Host()}}
	p.changed.L = &p.mu
	return p
}

// follow reports whether this process has no frontend and no scheduler.
func (p *processes) follow() bool { return p != nil && p.Rank() > 0 }

// share has a model's options divide it among the processes.
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

// processes is how many share the memory and the threads that the flags give.
func (o *modelOptions) processes() int {
	if ranks != nil {
		return ranks.Size()
	}
	return 1
}

// follow computes a part of a model's steps, until rank 0 ends. Signals that all ranks get are for rank 0, which
// lets requests end.
func follow(path string, o *modelOptions) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	l, err := prepare(path, o)
	if err != nil {
		return err
	}
	if err := l.loadWeights(o); err != nil {
		return errors.Join(err, l.close())
	}
	c, err := o.engine()
	if err == nil {
		c.Model, c.Pool = l.workers[0].Model, l.workers[0].Pool
		err = engine.Follow(c, ranks)
	}
	return errors.Join(err, l.close())
}

// agree returns when all processes know their model and flags, and these are the same.
func (p *processes) agree(l *loaded, o *modelOptions) error {
	content, shape, err := l.identity()
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.limit = o.limit
	p.own.Facts = []fact{
		{"the version of llmserve", terminal.Version()}, {"the content of the weights", content}, {"the model", shape},
		{"the processor's kind", runtime.GOARCH + ", " + matrix.Kernels()},
		{"--block-size", fmt.Sprint(o.blockSize)}, {"--kv-cache-gb", fmt.Sprint(o.kvGB)},
		{"--max-model-len", fmt.Sprint(o.maxModelLen)}, {"--max-num-batched-tokens", fmt.Sprint(o.maxTokens)},
		{"--kv-cache-dtype", o.kvType}, {"--activation-dtype", o.activations}, {"--iteration-timeout", p.limit.String()},
	}
	p.mu.Unlock()
	p.reach(knowsModel)
	return nil
}

// reach returns when all processes have come as far as this one.
func (p *processes) reach(s stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own.Stage = s
	for p.all < s {
		p.changed.Wait()
	}
}

// interval is how often reports are exchanged.
const interval = 50 * time.Millisecond

// exchange exchanges reports until all have loaded their weights. It ends this process if one refuses.
func (p *processes) exchange() {
	for {
		p.mu.Lock()
		own, err := json.Marshal(p.own)
		p.mu.Unlock()
		var all [][]byte
		if err == nil {
			all, err = p.Exchange(own)
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

// refusal is why the processes cannot go on; empty: they can. All of them decide the same.
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

// quit ends this process, as all others do; rank 0 says why.
func (p *processes) quit(why string) {
	p.end()
	if p.follow() {
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, "llmserve:", why)
	os.Exit(1)
}

// advance returns the stage that all have reached; those that have left count as being at the last one.
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

func (r report) reached() stage {
	if r.Left {
		return loadedWeights
	}
	return r.Stage
}

// leave ends this process's part in the world. If it refuses before steps were sent, all others end as well.
func (p *processes) leave(err error) error {
	if p == nil {
		return err
	}
	p.mu.Lock()
	stepping := p.all == loadedWeights
	p.own.Left = err == nil
	if err != nil && !stepping {
		p.own.Refused = strings.ReplaceAll(err.Error(), "\n", "; ")
		if p.own.Refused == "" {
			p.own.Refused = "ended"
		}
	}
	for p.all < loadedWeights {
		p.changed.Wait() // exchange ends the process if this one has refused
	}
	p.mu.Unlock()
	if err != nil && !errors.Is(err, context.Canceled) {
		p.Abort(err)
	}
	p.end()
	return err
}

// end leaves the world, or ends this process if that takes too long: another one may be lost.
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
