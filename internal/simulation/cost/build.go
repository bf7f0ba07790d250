package cost

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Units of the numbers in files.
const (
	milli = 1e-3
	micro = 1e-6
	giga  = 1e9
	tera  = 1e12
)

// Model returns the model that computes times of iterations. block is the block size in tokens. The error
// wraps ErrFile.
func (s Setup) Model(block int) (*Model, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, s.Name, err)
	}
	if err := checkBlock(block); err != nil {
		return nil, err
	}
	m := s.times(block)
	if margin := s.Margin(); margin != nil {
		m.first = milli * margin.First.Likely
	}
	m.describe, m.constants = s.describe(), s.constants(m, block)
	return m, nil
}

// times returns the model without its descriptions.
func (s Setup) times(block int) *Model {
	m := &Model{factor: 1}
	if s.Linear != nil {
		m.base = milli * s.Linear.Base
		m.seq = milli * s.Linear.Seq
		m.context = milli * s.Linear.Context
		m.prompt = milli * s.Linear.Prompt
		if s.Measured != nil && s.Measured.Spread != nil {
			m.spread = *s.Measured.Spread
		}
	} else {
		s.roofline(m)
		s.allReduce(m)
		s.pipeline(m)
	}
	s.transfers(m, block)
	return m
}

// roofline sets the times of m from the data sheet of the GPU and from the engine's constants. A time from the data
// sheet is a number of bytes divided by a bandwidth, or a number of operations divided by a rate. The workers run at
// the same time, each with its share of the heads, so each time is for one worker.
func (s Setup) roofline(m *Model) {
	l, e := s.LLM, s.Engine
	bandwidth, flops, attention := giga*s.GPU.Bandwidth, tera*s.GPU.rate(l.Computed), tera*s.GPU.FP16

	// Linear layers read all weights once. Each weight takes a multiplication and an addition for each token. The
	// weights of the head are used only for each generated token. If the embedding and the head are different
	// matrices, only a few rows of the embedding are read, which is ignored here.
	layers, head := l.sharedMatrices(s.Workers), l.headMatrix(s.Workers)
	reading := bandwidth * e.Weights
	if limit := giga * e.Processor * s.GPU.Processors; limit > 0 {
		reading = min(reading, limit)
	}
	m.weights = (l.ParameterBytes*layers + l.outerBytes()*head) / reading
	m.token = 2 * layers / (flops * e.Compute)
	m.logits = 2 * head / (flops * e.Compute)
	if l.Experts > 0 {
		m.experts = s.experts(reading, flops*cmp.Or(e.ExpertCompute, e.Compute))
	}

	// A token that attends to another one reads the other's key and value. Each query head multiplies each element of
	// the key and of the value once, and adds the products. Prompts write their keys and values and read them at
	// least once.
	kv := float64(l.kvBytes(s.Workers, 1))
	pair := 4 * float64(l.Layers) * float64(l.Heads/s.Workers) * float64(l.HeadSize)
	reads := 1 + e.Reread*(float64(l.Heads)/float64(l.KVHeads)-1)
	m.context = max(reads*kv/(bandwidth*e.Attention), pair/(attention*e.Compute))
	m.promptPair = pair / (attention * e.PromptAttention)
	m.promptKV = 2 * kv / (bandwidth * e.Attention)

	// Norms, sums and activation functions read and write the states of every token.
	m.state = e.Activations * activationBytes * l.activations(s.Workers) / bandwidth

	m.base = milli * (e.Base + e.Layer*float64(l.Layers))
	m.launches = milli * e.PromptLayer * float64(l.Layers)
	m.seq = milli * e.Seq
	m.rounded = e.Rounded
}

// allReduce adds the times of all-reduces to m. With tensor parallelism, each worker computes a part of the sum that is
// a token's state. The parts are added up twice in a layer, after attention and after the feed-forward part, or once if
// the model runs both in parallel. In a ring of w workers, each sends 2(w-1)/w of the state.
//
// With GPU.ThroughHost, all workers send over the link to the CPU's memory, and share its bandwidth. The bandwidth
// suffices for two workers that each send at the full rate, GPU.WorkerLink. If there are w workers, each sends at 2/w
// of this rate.
func (s Setup) allReduce(m *Model) {
	if s.Workers == 1 {
		return
	}
	w, times := float64(s.Workers), s.LLM.allReduces()*float64(s.LLM.Layers)
	m.reduce = times * micro * cmp.Or(s.Engine.AllReduce, s.GPU.LinkLatency)
	state := float64(s.LLM.Hidden) * activationBytes
	if s.GPU.ThroughHost {
		state *= w / 2
	}
	m.state += times * state * 2 * (w - 1) / w / (giga * s.GPU.WorkerLink * s.Engine.WorkerLink)
}

// transfers sets the times of swaps and copies. Each worker transfers its own part of a block over its own link.
func (s Setup) transfers(m *Model, block int) {
	bytes := float64(s.blockBytes(block))
	m.swapBlock = bytes / (giga * s.swapLink())
	m.swapEach = 2 * float64(s.LLM.Layers/s.stages()) * micro * s.Engine.Copy
	m.copyBlock = 2 * bytes / (giga * s.GPU.Bandwidth * s.Engine.Weights) // read and written
}

func (s Setup) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %d x %s, ", s.LLM.Name, s.GPUs(), s.GPU.Name)
	switch {
	case s.Measured != nil:
		fmt.Fprintf(&b, "%s", s.Measured)
	case s.Linear != nil:
		fmt.Fprint(&b, "calibrated line")
	case s.Fitted != nil:
		fmt.Fprintf(&b, "%s; %s", s.Margin(), s.Fitted)
	default:
		fmt.Fprint(&b, "vLLM's of 2023, constants chosen by hand: without data")
		if slices.Contains(MeasuredGPUs(), s.GPU.Name) {
			fmt.Fprintf(&b, " (--engine %s is newer, fitted to measurements on %s)", VLLM, s.GPU.Name)
		} else {
			fmt.Fprintf(&b, " (no measurements of newer releases on %s are published; measure yours and use llmsim calibrate)",
				s.GPU.Name)
		}
	}
	if note := s.unmeasured(); note != "" {
		fmt.Fprintf(&b, "; %s: a roofline, compared with no measurement", note)
	}
	return b.String()
}

func (s Setup) constants(m *Model, block int) string {
	var b strings.Builder
	if s.Linear != nil {
		fmt.Fprintf(&b, "in ms: %.4g + %.3g for each sequence + %.3g for each context token + %.3g for each prompt token",
			m.base/milli, m.seq/milli, m.context/milli, m.prompt/milli)
		if spread := m.spread.String(); spread != "" {
			fmt.Fprintf(&b, "; %s", spread)
		}
	} else {
		fmt.Fprintf(&b, "roofline, in ms: %.4g (weights %.4g) + %.3g for each sequence + %.3g for each context token + "+
			"%.3g for each prompt token beyond %.0f",
			(m.base+m.reduce+m.weights)/milli, m.weights/milli, (m.seq+m.state)/milli, m.context/milli,
			(m.token+m.prompt+m.state)/milli,
			m.weights/m.token)
		if m.launches > 0 {
			fmt.Fprintf(&b, "; prompts take the GPU at least %.3g", m.launches/milli)
		}
	}
	if m.experts.all > 0 {
		fmt.Fprintf(&b, "; experts up to %.4g", m.experts.all/milli)
	}
	fmt.Fprintf(&b, "; a block of %d swaps in %.3g ms", block, (m.swapBlock+m.swapEach)/milli)
	return b.String()
}

func checkBlock(block int) error {
	const maxTokens = 1 << 20
	if block < 1 || block > maxTokens {
		return fmt.Errorf("%w: blocks of %d tokens, must be from 1 to %d", ErrFile, block, maxTokens)
	}
	return nil
}
