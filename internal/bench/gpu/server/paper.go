package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"llmmemory/internal/scheduling/paper"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/simulation/workload"
)

// A comparison runs systems on the same requests, with the same memory for keys and values.
type comparison struct {
	*bench
	shape
	model        *model.Model
	gpuModel     *gpu.Model
	config       engine.RunnerConfig
	runner       engine.DeviceRunner
	cacheBytes   int
	blocks, unit int           // blocks in this memory; tokens of ShareGPT that are one token here
	limits       limits        // of an iteration
	slice        time.Duration // how long a third of a run may take; 0 means no limit
}

type limits = paper.Limits

// Names of the systems. The first is llmserve's engine, which has vLLM V1's scheduler; the others have
// schedulers of the paper.
const (
	blocksV1   = "blocks (llmserve)"
	blocksSOSP = "blocks (the paper's scheduler)"
	orcaOracle = "Orca (Oracle)"
	orcaPow2   = "Orca (Pow2)"
	orcaMax    = "Orca (Max)"
)

// paper compares systems as the PagedAttention paper does with OPT-13B: 12 GB for keys and values, and
// requests with ShareGPT's lengths, which all arrive at once.
func (b *bench) paper() (err error) {
	c := &comparison{bench: b, shape: opt(b.small), cacheBytes: 12 << 30, unit: 1, limits: limits{MaxNumBatchedTokens: 2560, MaxNumSeqs: 256}}
	longest := 2048 // of OPT
	if b.small {
		c.unit, longest, c.limits.MaxNumBatchedTokens, c.cacheBytes = 32, 64, 64, 16*blockSize*c.kvBytes
	}
	if left := time.Until(b.deadline); !b.deadline.IsZero() {
		if left > 100*time.Second {
			left -= 45 * time.Second // for the next part
		}
		c.slice = min(left/24, 6*time.Second) // there are 21, and the model is put on the GPU
	}
	dir, err := b.folder("opt", c.shape)
	if err != nil {
		return err
	}
	if c.model, c.gpuModel, err = b.openModel(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.gpuModel.Close()) }()
	c.blocks = c.cacheBytes / (blockSize * c.kvBytes)
	if c.config, err = runnerConfig(c.gpuModel, c.layers, c.blocks, c.limits.MaxNumSeqs, c.limits.MaxNumBatchedTokens, longest); err != nil {
		return err
	}
	requests := c.drawn(b.pick(200, 20))
	if _, err := c.engine(&observed{}, []request{{requests[0].prompt, 4}}); err != nil { // kernels are compiled
		return err
	}
	first := &observed{}
	tokens, err := c.engine(first, requests)
	if err != nil {
		return err
	}
	if c.runner, err = c.gpuModel.NewRunner(c.config); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.runner.Close()) }()
	return errors.Join(c.compareSystems(requests, &first.progress, tokens), c.compareSharing(c.drawn(b.pick(60, 5))))
}

func (c *comparison) drawn(n int) (all []request) {
	lengths, _, _ := workload.Named("sharegpt")
	rnd := rand.New(rand.NewPCG(6, 7))
	for range n {
		prompt, output := lengths.Draw(rnd)
		all = append(all, request{randomTokens(rnd, (prompt+c.unit-1)/c.unit, c.model.VocabSize), (output + c.unit - 1) / c.unit})
	}
	return all
}

func (c *comparison) deadline(slices time.Duration) (t time.Time) {
	if c.slice > 0 {
		t = time.Now().Add(slices * c.slice)
	}
	return t
}

func (c *comparison) engine(o *observed, requests []request) ([][][]int32, error) {
	e, err := c.bench.engine(c.model, c.gpuModel, engine.Config{KVCacheBytes: int64(c.cacheBytes), MaxModelLen: c.config.MaxModelLen, MaxNumSeqs: c.limits.MaxNumSeqs,
		MaxNumBatchedTokens: c.limits.MaxNumBatchedTokens}, o)
	if err != nil {
		return nil, err
	}
	o.progress.begin(len(requests))
	tokens, err := answers(e, requests, 1, c.deadline(3))
	return tokens, errors.Join(err, e.Close())
}

func (c *comparison) run(name string, requests []request, n int, slices time.Duration) (*system, error) {
	policy, orca := map[string]paper.Policy{orcaOracle: paper.Oracle, orcaPow2: paper.Pow2, orcaMax: paper.Max}[name]
	var s *paper.Scheduler
	var err error
	if orca {
		s, err = paper.NewOrca(paper.OrcaConfig{BlockSize: blockSize, NumGPUBlocks: c.blocks, MaxModelLen: c.config.MaxModelLen, Policy: policy}, c.limits)
	} else {
		s, err = paper.NewSOSP(paper.Config{BlockSize: blockSize, NumGPUBlocks: c.blocks, NumCPUBlocks: c.blocks, Watermark: 0.01}, c.limits, false)
	}
	if err != nil {
		return nil, err
	}
	y, err := newSystem(s, orca, c.runner, &c.config, requests, n)
	if err != nil {
		return nil, err
	}
	return y, y.run(c.deadline(slices))
}

// compareSystems compares the systems on requests with one answer each. tokens has the answers of llmserve's engine,
// with which the answers of all other systems must agree (check). first has this engine's measurements.
func (c *comparison) compareSystems(requests []request, first *progress, tokens [][][]int32) error {
	mean := 0.0
	for _, r := range requests {
		mean += float64(r.output) / float64(len(requests))
	}
	show := func(name string, p *progress) {
		fmt.Printf("  %-32s %8.3f requests/s, %7.1f tokens/s, %5.1f sequences in a step, %d steps\n", name, p.rate()/mean, p.rate(),
			float64(p.sequences)/float64(p.measured), p.steps)
	}
	errs := []error{c.check(blocksV1, requests, tokens, tokens)}
	fmt.Printf("OPT-13B's shape, %.1f GB of keys and values, %d requests of ShareGPT's lengths at once:\n", float64(c.cacheBytes)/(1<<30), len(requests))
	show(blocksV1, first)
	rates := map[string]float64{}
	for _, name := range []string{blocksSOSP, orcaOracle, orcaPow2, orcaMax} {
		y, err := c.run(name, requests, 1, 3)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("%s: %w", name, err))...)
		}
		errs = append(errs, c.check(name, requests, y.answers, tokens))
		show(name, &y.progress)
		rates[name] = y.rate()
	}
	for _, r := range []struct {
		name, published string
		minimum         float64
	}{{orcaOracle, "1.7 to 2.7", 1.5}, {orcaMax, "2.7 to 8", 2.5}} {
		b := c.bench
		b.row(blocksV1+" against "+r.name, fmt.Sprintf("%.3f and %.3f requests/s", first.rate()/mean, rates[r.name]/mean), first.rate()/rates[r.name],
			fmt.Sprintf("%.2f (the paper: %s)", r.minimum, r.published), r.minimum)
	}
	return errors.Join(errs...)
}

// check compares each answer with the wanted answer, up to the end of the shorter one. It returns an error if they
// differ. Without a time limit, it also returns an error if an answer is incomplete.
func (c *comparison) check(name string, requests []request, got, want [][][]int32) error {
	for i, answers := range got {
		for k, answer := range answers {
			n := min(len(answer), len(want[i][0]))
			if !slices.Equal(answer[:n], want[i][0][:n]) {
				return fmt.Errorf("%s: answer %d to request %d is %v, want %v", name, k, i, answer, want[i][0])
			}
			if c.slice == 0 && len(answer) != requests[i].output {
				return fmt.Errorf("%s: answer %d to request %d has %d tokens of %d", name, k, i, len(answer), requests[i].output)
			}
		}
	}
	return nil
}

// compareSharing compares blocks with Orca's reservations on requests with several answers. Blocks let the answers to a
// request share the memory of their prompt.
func (c *comparison) compareSharing(requests []request) error {
	var errs []error
	for _, n := range []int{2, 4, 6} {
		shared, err := c.run(blocksSOSP, requests, n, 1)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		reserved, err := c.run(orcaOracle, requests, n, 1)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, c.check(blocksSOSP, requests, shared.answers, shared.answers), c.check(orcaOracle, requests, reserved.answers, shared.answers))
		c.row(fmt.Sprintf("answers=%d: blocks against %s", n, orcaOracle), fmt.Sprintf("%.1f and %.1f tokens/s", shared.rate(), reserved.rate()),
			shared.rate()/reserved.rate(), "", 0)
		fmt.Printf("  %.1f %% of the blocks are saved by sharing; %d and %d steps\n", 100*(1-float64(shared.used)/float64(shared.logical)), shared.steps, reserved.steps)
	}
	return errors.Join(errs...)
}
