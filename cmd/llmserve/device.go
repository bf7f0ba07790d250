package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/terminal"
)

// driver is the library of NVIDIA's driver. Tests replace it.
var driver = cuda.Library

// deviceOptions are the flags for computing on a GPU.
type deviceOptions struct {
	name        string
	utilization float64

	given  *pflag.FlagSet
	gpu    *gpu.Device // nil for the CPU
	reason string      // why --device auto takes the CPU
}

func (o *deviceOptions) flags(f *pflag.FlagSet) {
	o.given = f
	f.StringVar(&o.name, "device", "cpu",
		"what computes the model: cpu, cuda (an NVIDIA GPU; cuda:1 is the second one), or auto: a GPU if the model can run there")
	f.Float64Var(&o.utilization, "gpu-memory-utilization", 0.9,
		"part of the GPU's memory that may be in use; what weights and batches leave of it holds keys and values, unless --kv-cache-gb says how much")
}

// open opens the GPU, if the flags name one.
func (o *deviceOptions) open(m *modelOptions) error {
	if o.reason != "" {
		return nil
	}
	if o.name == "cpu" {
		if o.given.Changed("gpu-memory-utilization") {
			return errors.New("--gpu-memory-utilization needs --device cuda")
		}
		return nil
	}
	kind, number, numbered := strings.Cut(o.name, ":")
	ordinal, err := strconv.Atoi(number)
	if kind != "cuda" && o.name != "auto" || numbered && (err != nil || strconv.Itoa(max(ordinal, 0)) != number) {
		return fmt.Errorf("--device is %q; cpu, cuda, cuda:N and auto are possible", o.name)
	}
	if !(o.utilization > 0 && o.utilization <= 1) {
		return fmt.Errorf("--gpu-memory-utilization is %v; it must be above 0 and at most 1", o.utilization)
	}
	if err = o.conflict(m); err == nil {
		t := slow("opening the GPU")
		o.gpu, err = gpu.Open(driver, ordinal)
		t.Stop()
	}
	switch {
	case err == nil:
		return nil
	case o.name == "auto":
		o.reason = err.Error()
		return nil
	}
	return fmt.Errorf("--device %s: %w", o.name, err)
}

// conflict returns an error for flags that a GPU contradicts.
func (o *deviceOptions) conflict(m *modelOptions) error {
	switch {
	case ranks != nil:
		return errors.New("a GPU computes the whole model; start one process")
	case m.workers != 1:
		return errors.New("a GPU computes the whole model; leave --tensor-parallel-size out")
	case len(m.lora.modules) > 0:
		return errors.New("adapters (--lora-modules) are applied only on the CPU")
	case m.activations != "f16" && m.activations != "bf16" && m.activations != "auto":
		return fmt.Errorf("--activation-dtype is %q; f16, bf16 and auto are possible on a GPU", m.activations)
	}
	if m.kvTyped() && m.activations != "auto" && m.activations != m.kvType {
		return fmt.Errorf("--kv-cache-dtype is %s and --activation-dtype %s; on a GPU they are equal, or keys and values fp8", m.kvType, m.activations)
	}
	if _, ok := gpu.CacheTypes[m.kvType]; !ok {
		return fmt.Errorf("--kv-cache-dtype is %q; on a GPU auto (the type of activations, f16 or bf16), fp8_e4m3, fp8 and fp8_e5m2 are possible", m.kvType)
	}
	return nil
}

// kvTyped reports whether --kv-cache-dtype is one of the types of activations on a GPU.
func (o *modelOptions) kvTyped() bool { return o.kvType == "f16" || o.kvType == "bf16" }

// activationType returns the type of activations.
func (l *loaded) activationType(o *modelOptions) string {
	if l.gpu == nil && o.activations == "auto" {
		return "f32"
	}
	return o.activations
}

// planEngine returns the configuration of an engine for the model. On a GPU, the memory for keys and values depends on
// weightBytes, the bytes of weights that are not on the GPU yet.
func (l *loaded) planEngine(o *modelOptions, weightBytes int) (c engine.Config, err error) {
	if c, err = o.engine(l.config); err != nil || l.gpu == nil {
		return c, err
	}
	if l.device == nil {
		if l.device, err = l.gpu.NewModel(l.config, gpu.CacheTypes[o.kvType]); err != nil {
			return c, err
		}
	}
	c.Device = l.device
	if !o.kvGiven() {
		c.KVCacheBytes = 0
	}
	if weightBytes == unknownWeights {
		c.KVCacheBytes = cmp.Or(c.KVCacheBytes, math.MaxInt32<<16)
		return c, nil
	}
	p := gpuPlan{engine: c, model: l.config, utilization: o.device.utilization}
	if p.budget, err = l.device.NewBudget(weightBytes, p.limits()); err != nil {
		return c, err
	}
	c.KVCacheBytes, err = p.kvCacheBytes()
	return c, err
}

// unknownWeights is passed as weightBytes when the size of the weights is not known yet. planEngine then does not check
// that the GPU has enough memory.
const unknownWeights = -1

// kvGiven reports whether --kv-cache-gb, or the demo, sets the memory for keys and values. Without such a setting, keys
// and values on a GPU get the memory that --gpu-memory-utilization leaves.
func (o *modelOptions) kvGiven() bool { return o.kvFixed || o.device.given.Changed("kv-cache-gb") }

// kernels names the kind of processor or GPU. Answers computed on another kind can differ in their last bits.
func (l *loaded) kernels(o *modelOptions) string {
	if l.device != nil {
		return l.gpu.Kind()
	}
	kind, _ := cpuKernels(l.activationType(o), matrix.Tiles)
	return kind
}

// cpuKernels names the kind of processor, and the instructions that products use. They differ with int8: AMX is then
// used, but answers have the same bits without it. If activations are not rounded, cpuKernels does not call tiles, which
// asks Linux for permission.
func cpuKernels(activations string, tiles func() matrix.Form) (kind, used string) {
	const withAMX = " and AMX"
	kind = matrix.Kernels()
	switch {
	case activations == "bf16" && tiles()&matrix.Pairs != 0:
		return kind + withAMX, kind + withAMX
	case activations == "int8" && tiles()&matrix.Rounded != 0:
		return kind, kind + withAMX
	}
	return kind, kind
}

// loadOn returns an option that sends a model's weights to the GPU. If standard error is a terminal, it shows
// the progress there.
func (l *loaded) loadOn(o *modelOptions, pool *parallel.Pool) model.Option {
	return model.LoadOn(func(_ *model.Config, s *model.Sources) error {
		show := func(int, int) {}
		if terminal.StderrIsTerminal() {
			p := terminal.NewProgress("layers are on the GPU")
			defer p.Clear()
			show = p.Show
		}
		t := slow(fmt.Sprintf("sending a layer to %v", l.gpu))
		defer t.Stop()
		if err := l.device.Load(s, o.activations, pool, func(layers, all int) {
			t.Reset(slowAfter)
			show(layers, all)
		}); err != nil {
			return err
		}
		if kind := l.device.Type(); o.kvTyped() && o.kvType != kind {
			return fmt.Errorf("--kv-cache-dtype is %s and the activations are %s; give auto, or --activation-dtype %s", o.kvType, kind, o.kvType)
		}
		return nil
	})
}

// slowAfter is how long a part of the start may take before llmserve prints that it waits for this part. Tests change
// it.
var slowAfter = 30 * time.Second

// slow says on standard error that a part of the start takes longer than slowAfter, unless the timer is stopped before.
func slow(part string) *time.Timer {
	return time.AfterFunc(slowAfter, func() { fmt.Fprintf(os.Stderr, "llmserve: %s takes longer than %v\n", part, slowAfter) })
}

// failureShown is how long a server still answers after its device has failed. In this time /health can report the
// failure.
const failureShown = 2 * time.Second

// deviceFailure returns a channel that receives an error when the GPU has failed, or when a step takes longer than
// limit. In the second case deviceFailure also ends all requests. The channel is nil on the CPU.
func (l *loaded) deviceFailure(e *engine.Engine, limit time.Duration) <-chan error {
	if l.device == nil {
		return nil
	}
	failed := make(chan error, 1)
	go func() {
		for {
			if err := e.Failure(); err != nil {
				failed <- fmt.Errorf("%v failed: %w", l.gpu, err)
				return
			}
			if since := e.SinceStep(); since > limit {
				e.GiveUp(fmt.Errorf("%v has not finished a step for %v (--iteration-timeout)", l.gpu, since.Round(time.Second)))
				failed <- e.Failure()
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return failed
}

// abandonDevice gives up a failed device without closing it. The end of the process closes it. If a step does not
// end, the engine cannot stop, and abandonDevice returns at once. If the device has returned an error instead, the
// engine can stop. abandonDevice then gives the engine a short time, in which it writes blocks to the tiers.
func (l *loaded) abandonDevice(failure error, stopped <-chan error) {
	if f := (*engine.DeviceFailure)(nil); !errors.As(failure, &f) || !f.Stalled {
		select {
		case <-stopped: // with errors of everything that is on the device
		case <-time.After(partingTime):
		}
	}
	l.device, l.gpu = nil, nil
}
