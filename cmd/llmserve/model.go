package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/pflag"

	"llmmemory/internal/machine"
	"llmmemory/internal/serving/amx"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
)

// maxThreads is far above any useful number of threads. Go's runtime ends a process with more than 10,000 threads.
const maxThreads = 1024

// modelOptions are the flags for running a model.
type modelOptions struct {
	threads     int
	cpus        string
	workers     int
	limit       time.Duration // how long a step may take
	idle        time.Duration // how long there are no requests before the weights are freed
	events      eventOptions
	offload     offloadOptions
	lora        loraOptions
	pooling     poolingOptions
	device      deviceOptions
	kvGB        float64
	kvFixed     bool // kvGB is the default on a GPU, too
	kvType      string
	activations string
	blockSize   int
	stateMode   string
	maxModelLen int
	maxSeqs     int
	maxTokens   int
	maxWaiting  int
	noCaching   bool
	noAsync     bool
	speculative int
	template    string
}

func (o *modelOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.threads, "threads", runtime.GOMAXPROCS(0),
		"threads that compute; by default one for each processor that this process may use; with a GPU they prepare "+
			"weights and choose tokens")
	f.StringVar(&o.cpus, "cpus", "",
		"processors to bind these threads to, one each: 0-3,8 (default: the system places them)")
	if connect != nil {
		f.DurationVar(&o.limit, "iteration-timeout", defaultLimit,
			"how long a rank may take to answer in a step before all ranks are ended; while a step takes longer, "+
				"/health is 503")
	}
	f.IntVar(&o.workers, "tensor-parallel-size", 1,
		"workers: 1, 2 or 4, each with its share of heads, threads and weights; answers stay the same")
	f.Float64Var(&o.kvGB, "kv-cache-gb", 1, "memory for keys and values, in GiB (on a GPU by default what --gpu-memory-utilization leaves)")
	f.StringVar(&o.kvType, "kv-cache-dtype", "auto",
		"type of keys and values: f32, f16, bf16, fp8_e4m3 (or fp8), fp8_e5m2, int8, or auto: f16, or the type of activations on a "+
			"GPU, where only this type and fp8 are possible")
	f.StringVar(&o.activations, "activation-dtype", "auto",
		"type of the activations that weights are multiplied by; on the CPU f32 (auto), or bf16 (with F16 and BF16 weights) or int8 "+
			"(with quantized ones: W8A8 and W4A8), which are faster and round; on a GPU f16 or bf16 (auto: as the weights)")
	f.IntVar(&o.blockSize, "block-size", 16, "tokens of a block")
	f.StringVar(&o.stateMode, "mamba-cache-mode", "align", "which states of layers without keys and values are kept for later prompts: align "+
		"(at the end of each prompt, and where a prompt leaves an earlier one, so that the next prompt with the same beginning finds it) "+
		"or all (at ends of all blocks, also of answers, which takes several times the memory)")
	f.IntVar(&o.maxModelLen, "max-model-len", 0,
		"tokens of the longest sequence (default: the model's, or what the memory holds if that is less)")
	f.IntVar(&o.maxSeqs, "max-num-seqs", 64, "largest number of running sequences")
	f.IntVar(&o.maxTokens, "max-num-batched-tokens", 512, "largest number of tokens in a step")
	f.IntVar(&o.maxWaiting, "max-waiting", 1024, "requests that may wait while --max-num-seqs run")
	f.IntVar(&o.speculative, "num-speculative-tokens", 0,
		"draft tokens for each step, proposed by looking up the last tokens earlier in the text (prompt lookup); "+
			"answers stay the same")
	f.BoolVar(&o.noAsync, "no-async-scheduling", false,
		"schedule a step only after the previous one has been delivered, instead of while the model computes it")
	o.device.flags(f)
	f.StringVar(&o.template, "chat-template", "", "file with a chat template to use instead of the model's")
	f.BoolVar(&o.noCaching, "no-prefix-caching", false, "compute prompts in full even if their beginning is cached")
}

// check checks the flags that need no model.
func (o *modelOptions) check() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"threads", o.threads}, {"block-size", o.blockSize}, {"max-num-seqs", o.maxSeqs},
		{"max-num-batched-tokens", o.maxTokens}, {"max-waiting", o.maxWaiting},
	} {
		if f.value < 1 {
			return fmt.Errorf("--%s is %d; it must be at least 1", f.name, f.value)
		}
	}
	switch {
	case o.blockSize > attention.MaxBlockSize:
		return fmt.Errorf("--block-size is %d; it must be at most %d", o.blockSize, attention.MaxBlockSize)
	case o.threads > maxThreads:
		return fmt.Errorf("--threads is %d; at most %d are possible, and more than this machine's %d processors "+
			"gain nothing", o.threads, maxThreads, runtime.NumCPU())
	case !(o.kvGB > 0):
		return fmt.Errorf("--kv-cache-gb is %v; it must be above 0", o.kvGB)
	}
	if ranks != nil {
		if err := ranks.share(o); err != nil {
			return err
		}
	}
	if err := o.lora.check(); err != nil {
		return err
	}
	if o.device.name == "cpu" {
		if err := o.checkCPU(); err != nil {
			return err
		}
	}
	switch n := o.workers; {
	case o.kvGB >= 1<<20: // the bytes would not fit in an int
		return fmt.Errorf("--kv-cache-gb is %v; it must be below %d", o.kvGB, 1<<20)
	case n != 1 && n != 2 && n != 4:
		return fmt.Errorf("--tensor-parallel-size is %d; 1, 2 and 4 are possible", n)
	}
	return nil
}

// checkCPU checks the flags whose limits are those of the CPU.
func (o *modelOptions) checkCPU() error {
	if have, ok := machine.AvailableMemory(); ok && o.kvGB*(1<<30) > float64(have*o.processes()) {
		return fmt.Errorf("--kv-cache-gb %v: %.1f GiB of memory are available; give less", o.kvGB, float64(have)/(1<<30))
	}
	if cpu := os.Getenv(amx.Environment); cpu != "" && cpu != amx.WithoutAMX {
		return fmt.Errorf("%s is %q; %s is possible: products then do not use AMX", amx.Environment, cpu, amx.WithoutAMX)
	}
	if _, ok := activationTypes[o.activations]; !ok {
		err := fmt.Errorf("--activation-dtype is %q; f32, bf16 and int8 are possible, and auto: f32", o.activations)
		if o.device.reason != "" {
			err = fmt.Errorf("%w; the CPU computes because: %s", err, o.device.reason)
		}
		return err
	}
	return nil
}

// activationTypes are the values of --activation-dtype with the model's options.
var activationTypes = map[string][]model.Option{
	"auto": nil, "f32": nil, "bf16": {model.BF16Activations}, "int8": {model.Int8Activations},
}

// kvTypes are the values of --kv-cache-dtype. Types of 8 bits have vLLM's names.
var kvTypes = map[string]attention.DType{
	"auto": attention.F16, "f32": attention.F32, "f16": attention.F16, "bf16": attention.BF16,
	"fp8": attention.E4M3, "fp8_e4m3": attention.E4M3, "fp8_e5m2": attention.E5M2, "int8": attention.Int8,
}

// engine returns the engine's configuration, without the model, for a model with the configuration c.
func (o *modelOptions) engine(c *model.Config) (engine.Config, error) {
	dtype, ok := kvTypes[o.kvType]
	if !ok {
		return engine.Config{}, fmt.Errorf("--kv-cache-dtype is %q; f32, f16, bf16, fp8_e4m3, fp8, fp8_e5m2, int8 and auto "+
			"are possible", o.kvType)
	}
	if o.stateMode != "align" && o.stateMode != "all" {
		return engine.Config{}, fmt.Errorf("--mamba-cache-mode is %q; align and all are possible; --no-prefix-caching keeps no states for later prompts",
			o.stateMode)
	}
	if o.device.given.Changed("mamba-cache-mode") {
		switch {
		case c.Recurrence == nil:
			return engine.Config{}, errors.New("--mamba-cache-mode: the model has no layers with states; leave the flag out")
		case o.noCaching:
			return engine.Config{}, errors.New("--mamba-cache-mode: --no-prefix-caching keeps no states; leave one of the flags out")
		}
	}
	return engine.Config{
		AllStates: o.stateMode == "all", BlockSize: o.blockSize, KVCacheBytes: int64(o.kvGB * (1 << 30)), KVCacheDType: dtype, MaxModelLen: o.maxModelLen,
		MaxNumSeqs: o.maxSeqs, MaxNumBatchedTokens: o.maxTokens, MaxWaiting: o.maxWaiting, NoPrefixCaching: o.noCaching,
		NumSpeculativeTokens: o.speculative, NoAsyncScheduling: o.noAsync,
	}, nil
}
