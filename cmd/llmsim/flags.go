package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/workload"
)

func addRun(f *pflag.FlagSet, s *scenario.Scenario) {
	f.StringVar(&s.Server.System, "system", "", "system to simulate: "+
		strings.Join(sim.Systems(), ", ")+" (default vllm-v1)")
	f.Var((*rateFlag)(s), "rate", "requests a second, or inf for all at once (default 1, or the trace's own rate)")
	addBlockSize(f, &s.Server)
	addRequests(f, s)
	addClients(f, s)
	addModel(f, s)
	addDecoding(f, &s.Decoding)
	addMemory(f, &s.Server)
}

// A rateFlag sets Rate of a scenario, or AtOnce if the value is "inf".
type rateFlag scenario.Scenario

func (r *rateFlag) String() string {
	if r.AtOnce {
		return "inf"
	}
	return strconv.FormatFloat(r.Rate, 'g', -1, 64)
}

func (r *rateFlag) Type() string { return "float" }

func (r *rateFlag) Set(text string) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number", text)
	}
	if !(v > 0) {
		return errNotPositive
	}
	if r.AtOnce = math.IsInf(v, 1); r.AtOnce {
		v = 0
	}
	r.Rate = v
	return nil
}

// addClients adds the flags of scenario.Clients, which are those of vLLM's "bench serve".
func addClients(f *pflag.FlagSet, s *scenario.Scenario) {
	f.IntVar(&s.MaxConcurrency, "max-concurrency", s.MaxConcurrency, maxConcurrency)
	addSessions(f, s)
}

const maxConcurrency = "largest number of unanswered requests; others wait at the clients, and their latency begins when " +
	"they are sent (default: no limit)"

// addSessions adds the flags of addClients except --max-concurrency.
func addSessions(f *pflag.FlagSet, s *scenario.Scenario) {
	f.Float64Var(&s.Turns, "turns", s.Turns,
		"mean number of turns of a conversation, each sent after the previous answer; with a trace that has hash_ids, 1 "+
			"finds its turns (default: no conversations)")
	f.Float64Var(&s.Think, "think", s.Think, "mean seconds from an answer to the next turn; with a trace, the least seconds")
	f.Var((*goodput)(&s.Goodput), "goodput",
		"count the requests within all of these limits, such as 'ttft<1s,tpot<50ms,e2e<30s'")
}

// A goodput is a flag for limits of each request's latencies.
type goodput sim.Goodput

func (g *goodput) String() string { return "" }

func (g *goodput) Type() string { return "limits" }

func (g *goodput) Set(text string) error {
	slo, err := capacity.ParseSLO(text)
	if err != nil {
		return err
	}
	*g = goodput{}
	for _, o := range slo {
		limit := map[capacity.Metric]*float64{capacity.TTFT: &g.TTFT, capacity.TPOT: &g.TPOT, capacity.E2E: &g.E2E}[o.Metric]
		if limit == nil || o.Level != 0 {
			return fmt.Errorf("%q: of one request want ttft, tpot or e2e below a time, without @", o)
		}
		*limit = o.Limit
	}
	return nil
}

func addBlockSize(f *pflag.FlagSet, v *sim.Server) {
	v.BlockSize = 16
	f.Var(positive[int]{&v.BlockSize}, "block-size", "tokens in a block")
}

// positive is a flag for a number above 0. It refuses 0, because a scenario with 0 in a field uses the default of
// the field.
type positive[T int | float64] struct{ number *T }

func (p positive[T]) String() string {
	if p.number == nil || *p.number == 0 {
		return ""
	}
	return fmt.Sprint(*p.number)
}

func (p positive[T]) Type() string { return fmt.Sprintf("%T", *new(T)) }

func (p positive[T]) Set(text string) error {
	var v float64
	var err error
	if _, whole := any(p.number).(*int); whole {
		var n int64
		n, err = strconv.ParseInt(text, 10, 0)
		v = float64(n)
	} else {
		v, err = strconv.ParseFloat(text, 64)
	}
	if err == nil && !(v > 0) {
		return errNotPositive
	}
	*p.number = T(v)
	return err
}

var errNotPositive = errors.New("want more than 0, or leave the flag out for its default")

func addRequests(f *pflag.FlagSet, s *scenario.Scenario) {
	f.StringVar(&s.Workload, "workload", s.Workload, "requests: "+
		strings.Join(workload.Names(), ", ")+" (default sharegpt)")
	f.StringVar(&s.Trace, "trace", s.Trace,
		"file with the requests, instead of a workload: CSV or JSONL with arrival (s), prompt and output (tokens), "+
			"BurstGPT's or Azure's CSV, or Mooncake's JSONL; may be gzipped")
	f.Var(positive[int]{&s.InputLen}, "input-len", "tokens of each prompt, instead of a workload, as in vllm bench serve")
	f.Var(positive[int]{&s.OutputLen}, "output-len", fmt.Sprintf("tokens of each answer (default %d with --input-len)",
		scenario.DefaultOutputLen))
	f.Float64Var(&s.RangeRatio, "range-ratio", s.RangeRatio,
		"largest fraction by which these lengths are shorter or longer: 0.5 means from half to one and a half (default 0)")
	f.Var(positive[float64]{&s.Duration}, "duration", "seconds during which requests arrive (default 1000, or the whole trace)")
	f.IntVar(&s.Requests, "requests", s.Requests, "largest number of requests (default: no limit)")
	f.Var(positive[float64]{&s.Burstiness}, "burstiness",
		"shape of the gamma distribution of gaps between requests: below 1 is burstier, above 1 more even (default 1, "+
			"Poisson)")
	f.Uint64Var(&s.Seed, "seed", s.Seed, "seed of the random numbers")
	if s.Seed == 0 {
		f.Lookup("seed").Usage += " (default 0)" // pflag does not print a default of 0
	}
}

func addModel(f *pflag.FlagSet, s *scenario.Scenario) {
	f.StringVar(&s.Setup, "setup", s.Setup,
		"model, GPU and times of iterations: a name of llmsim list, or a .json file (default "+scenario.PaperSetup+")")
	f.StringVar(&s.Model, "model", s.Model, "model, with --gpu instead of --setup: a name of llmsim list, or a .json file")
	f.StringVar(&s.GPU, "gpu", s.GPU, "GPU for --model: a name of llmsim list, or a .json file")
	f.StringVar(&s.Engine, "engine", s.Engine,
		"for --model: source of the times: "+cost.VLLM+" (V1), fitted to published measurements (llmsim list names the "+
			"GPUs), or "+scenario.DataSheet+", with constants chosen by hand for vLLM of 2023 (default: "+cost.VLLM+
			" on GPUs for which it has constants, otherwise "+scenario.DataSheet+")")
	f.StringVar(&s.Cost, "cost", s.Cost, "cost file with times of iterations, written by llmsim calibrate")
	f.Var(positive[int]{&s.Workers}, "workers", "GPUs that share each layer (tensor parallelism) (default 1)")
	f.Var(positive[int]{&s.Stages}, "stages",
		"for --model: stages with a part of the layers each, on --workers GPUs each (pipeline parallelism) (default 1)")
	f.BoolVar(&s.Apart, "experts-apart", s.Apart,
		"for a --model with a mixture of experts: keep each expert on one worker (expert parallelism)")
	f.StringVar(&s.Weights, "weights", s.Weights,
		"for --model: type of the weights: fp16, bf16, fp8, int8, int4, fp4 (default: the model's)")
	f.StringVar(&s.KV, "kv", s.KV, "for --model: type of keys and values: fp16, bf16, fp8, int8 (default: the model's)")
	f.Var(positive[float64]{&s.MemoryUtilization}, "memory-utilization",
		fmt.Sprintf("fraction of each GPU's memory that may be used, vLLM's gpu_memory_utilization (default: %g with "+
			"--model, otherwise the setup's: 0.95 in those of llmsim list)", scenario.DefaultMemoryUtilization))
	f.Var(positive[float64]{&s.SwapGB}, "swap-gb-s",
		"with --swap: greatest GB/s of swapping, such as a disk's (default: the link to the CPU)")
}

func addMemory(f *pflag.FlagSet, v *sim.Server) {
	f.Var(positive[int]{&v.NumGPUBlocks}, "blocks", "blocks of the GPU (default: as many as fit)")
	f.Var(positive[int]{&v.NumCPUBlocks}, "cpu-blocks", "blocks of the swap space (default: 20 GiB for each worker)")
	f.Var(positive[int]{&v.MaxNumBatchedTokens}, "max-tokens",
		"largest number of tokens in an iteration (default: vllm serve's for the GPU; with --setup 2560, or the longest "+
			"sequence)")
	f.Var(positive[int]{&v.MaxNumSeqs}, "max-seqs",
		"largest number of running sequences (default: vllm serve's for the GPU; with --setup 256)")
	f.Var(positive[int]{&v.MaxModelLen}, "max-len", "largest number of tokens of a sequence (default: the model's)")
	f.Func("watermark", "fraction of the blocks that admission leaves free, or -1 for none (default 0.01; vllm-v1: none)",
		func(text string) (err error) {
			if v.Watermark, err = strconv.ParseFloat(text, 64); err == nil && v.Watermark == 0 {
				err = errors.New("want more than 0, or -1 for none")
			}
			return err
		})
	f.BoolVar(&v.Swap, "swap", v.Swap, "preempt by swapping to the CPU (sosp, vllm-v0)")
	f.BoolVar(&v.Chunked, "chunked", v.Chunked, "compute prompts in chunks (vllm-v0; vllm-v1 always does)")
	f.BoolVar(&v.Caching, "caching", v.Caching, "cache prefixes (vllm-v0; vllm-v1 does)")
	f.BoolVar(&v.NoCaching, "no-caching", v.NoCaching, "do not cache prefixes (vllm-v1)")
	f.IntVar(&v.Prefix, "prefix", v.Prefix,
		"tokens that all prompts begin with, kept in blocks permanently (sosp) (default: the workload's)")
	f.Var(positive[int]{&v.BatchSize}, "batch",
		"requests of a static batch (fastertransformer) (default: the artifact's)")
}

func addDecoding(f *pflag.FlagSet, d *sim.Decoding) {
	d.Samples = 1
	f.Var(positive[int]{&d.Samples}, "samples", "answers to each prompt, or the width of its beam")
	f.BoolVar(&d.Beam, "beam", d.Beam, "the answers are a beam (sosp, orca)")
	f.Float64Var(&d.Replace, "replace", sim.DefaultReplace,
		"probability that a beam is replaced by a copy of another one after a token")
	f.IntVar(&d.Drafts, "drafts", d.Drafts, "draft tokens for each decode (speculative decoding, vllm-v1)")
	f.Float64Var(&d.Accept, "accept", 0.7, "probability that a draft token is accepted")
	f.Float64Var(&d.DraftTime, "draft-time", d.DraftTime, "seconds that drafting adds to an iteration")
}

func addWindow(f *pflag.FlagSet, s *scenario.Scenario) {
	f.Float64Var(&s.From, "from", s.From, "seconds at which the window of averages begins")
	f.Float64Var(&s.Until, "until", s.Until, "seconds at which it ends (default: with the arrivals)")
	f.BoolVar(&s.Stop, "stop", s.Stop, "end the run at the end of the window")
}
