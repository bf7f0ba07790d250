package cost

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// stages returns the number of stages, at least 1.
func (s Setup) stages() int { return max(1, s.Stages) }

// GPUs returns the number of GPUs: Workers in each stage.
func (s Setup) GPUs() int { return s.Workers * s.stages() }

func (s Setup) checkParallel() error {
	switch {
	case s.Stages < 0 || s.LLM.Layers%s.stages() != 0:
		return fmt.Errorf("%d stages cannot share the %d layers of %s evenly", s.Stages, s.LLM.Layers, s.LLM.Name)
	case s.ExpertsApart && s.LLM.Experts == 0:
		return fmt.Errorf("%s is no mixture of experts, so its experts cannot be apart", s.LLM.Name)
	case s.ExpertsApart && s.LLM.Experts%s.Workers != 0:
		return fmt.Errorf("%d workers cannot share the %d experts of %s evenly", s.Workers, s.LLM.Experts, s.LLM.Name)
	case s.Linear != nil && (s.stages() > 1 || s.ExpertsApart):
		return fmt.Errorf("--stages and --experts-apart cannot be used with measured times, which are of one arrangement of GPUs")
	}
	return within(figure{"swap_gb_s", s.SwapGigabytes, 0, 1e9})
}

// unmeasured names what no measurement that is built in has to do with.
func (s Setup) unmeasured() string {
	var all []string
	if s.stages() > 1 {
		all = append(all, fmt.Sprintf("%d stages", s.stages()))
	}
	if s.LLM.Experts > 0 {
		all = append(all, fmt.Sprintf("%d of %d experts a token", s.LLM.ExpertsPerToken, s.LLM.Experts))
	}
	if s.ExpertsApart {
		all = append(all, "experts apart")
	}
	if s.Fitted == nil && s.Linear == nil && (s.LLM.ParameterBytes != 2 || s.LLM.KVBytes != 2) {
		all = append(all, "numbers other than fp16")
	}
	cost := strings.NewReplacer("bf16", "fp16") // these cost the same
	same := func(known string) bool { return cost.Replace(known) == cost.Replace(s.LLM.numbers()) }
	if s.Fitted != nil && !slices.ContainsFunc(s.Fitted.types, same) {
		all = append(all, "weights in "+s.LLM.numbers())
	}
	if s.Fitted != nil && s.LLM.KVBytes < 2 && !s.Fitted.smallKV {
		all = append(all, "keys and values in 8 bits")
	}
	return strings.Join(all, ", ")
}

// numbers returns the type of the weights.
func (l LLM) numbers() string {
	if l.ParameterBytes < 1 && l.Computed != "fp4" {
		return "int4"
	}
	return cmp.Or(l.Computed, "fp16")
}

// blockBytes returns what a GPU holds of a block: the layers of its stage.
func (s Setup) blockBytes(tokens int) int64 {
	return s.LLM.kvBytes(s.Workers, tokens) / int64(s.stages())
}

// stageWeights returns the bytes of weights on the fullest GPU: with several stages the first
// has the embedding and the last the head, so that none has both.
func (s Setup) stageWeights() float64 {
	n, l := float64(s.stages()), s.LLM
	if n == 1 {
		return l.weightBytes(s.Workers)
	}
	rest := float64(l.Parameters) - l.matrices(1)
	return l.ParameterBytes*l.layerMatrices(s.Workers)/n + l.outerBytes()*(l.headMatrix(s.Workers)+rest)
}

// pipeline: as many batches are under way as there are stages (vLLM's
// max_concurrent_batches), each with its part of the sequences, so a sequence has its
// next token after every stage has computed every batch. Each batch reads all weights, as
// without stages; what grows with the tokens of a batch is divided by the stages. Between
// stages the state of each token is sent to the next one. All stages are equally slow,
// and no stage waits: a bound from below. So is the head divided by the stages, although it
// is on the last one alone and every token passes it.
func (s Setup) pipeline(m *Model) {
	if s.stages() == 1 {
		return
	}
	n := float64(s.stages())
	m.base += (n - 1) * milli * s.Engine.Base // of each stage
	for _, part := range []*float64{&m.seq, &m.context, &m.prompt, &m.state, &m.token, &m.logits, &m.promptPair,
		&m.promptKV, &m.experts.token} {
		*part /= n
	}
	m.experts.batches = n
	m.base += n * micro * s.GPU.LinkLatency
	hop := float64(s.LLM.Hidden) * activationBytes / (giga * s.GPU.WorkerLink * s.Engine.WorkerLink)
	m.seq += hop
	m.prompt += hop
}

// experts is what those of a mixture cost, in seconds, on one worker.
type experts struct {
	all     float64 // to read all of them
	unused  float64 // the probability that a token does not go through a given one
	token   float64 // to compute a token
	picks   float64 // experts of a token
	workers float64 // that experts are divided among; 1: all workers share each one
	batches float64 // that a step is divided into, by stages
}

func (s Setup) experts(bandwidth, flops float64) experts {
	l := s.LLM
	one := l.expertMatrices(s.Workers)
	x := experts{
		all:     l.ParameterBytes * float64(l.Experts) * one / bandwidth,
		unused:  1 - float64(l.ExpertsPerToken)/float64(l.Experts),
		token:   2 * float64(l.ExpertsPerToken) * one / flops,
		picks:   float64(l.ExpertsPerToken),
		workers: 1, batches: 1,
	}
	if s.ExpertsApart {
		x.workers = float64(s.Workers)
	}
	return x
}

// seconds returns how long n tokens take to read the experts that they go through, and to be
// computed there. Tokens choose each expert equally often and independently: then an
// expert is read with the probability 1 - unused^n. Where experts are apart, all wait for
// the worker with the most tokens: of n picks thrown at w workers the fullest has about
// n/w + √(2 n/w ln w) (Raab and Steger, "Balls into bins", 1998).
func (x experts) seconds(n float64) (read, compute float64) {
	batch := n / x.batches
	read = x.all * (1 - math.Pow(x.unused, batch))
	if x.workers == 1 {
		return read, x.token * n
	}
	mean := batch * x.picks / x.workers
	fullest := min(batch*x.picks, mean+math.Sqrt(2*mean*math.Log(x.workers)))
	return read, x.token * n * fullest / mean
}

// swapLink returns the GB/s at which blocks are swapped.
func (s Setup) swapLink() float64 {
	link := s.GPU.HostLink * s.Engine.HostLink
	if s.SwapGigabytes > 0 {
		return min(link, s.SwapGigabytes)
	}
	return link
}

// int4Bytes are those of a weight in 4 bits with a scale of 16 and a zero of 4 bits for
// each 128, as AWQ and GPTQ store it (group size 128).
const int4Bytes = (4 + 20.0/128) / 8

// fp4Bytes are those of a weight in 4 bits with a scale of 8 for each 16 (NVFP4).
const fp4Bytes = (4 + 8.0/16) / 8

// Quantised returns the setup with weights, and with keys and values, stored in the given types;
// "" leaves a type unchanged. int4 and fp4 apply to the matrices of layers only: AWQ, GPTQ and NVFP4
// usually leave the embedding, the head and the norms in 16 bits. fp8 and int8 apply to all weights:
// checkpoints usually leave the same weights in 16 bits, but the engines' constants were fitted
// with all of them in 8 bits. Linear layers are computed in fp8 or int8; int4 is computed in fp16.
// The error wraps ErrFile.
func (s Setup) Quantised(weights, kv string) (Setup, error) {
	l := &s.LLM
	switch weights {
	case "":
	case "fp16", "bf16":
		l.ParameterBytes, l.OuterBytes, l.Computed = 2, 0, weights
	case "fp8", "int8":
		l.ParameterBytes, l.OuterBytes, l.Computed = 1, 0, weights
	case "int4":
		l.ParameterBytes, l.OuterBytes, l.Computed = int4Bytes, 2, "fp16"
	case "fp4":
		l.ParameterBytes, l.OuterBytes, l.Computed = fp4Bytes, 2, weights
	default:
		return s, fmt.Errorf("%w: weights in %q: want fp16, bf16, fp8, int8, int4 or fp4", ErrFile, weights)
	}
	switch kv {
	case "":
	case "fp16", "bf16":
		s.LLM.KVBytes = 2
	case "fp8", "int8":
		s.LLM.KVBytes = 1
	default:
		return s, fmt.Errorf("%w: keys and values in %q: want fp16, bf16, fp8 or int8", ErrFile, kv)
	}
	if s.Linear != nil && weights+kv != "" {
		return s, fmt.Errorf("%w: %s: times measured with other numbers say nothing of weights in %q, keys and values in %q",
			ErrFile, s.Name, weights, kv)
	}
	if err := s.check(); err != nil {
		return s, fmt.Errorf("%w: %s: %w", ErrFile, s.Name, err)
	}
	return s, nil
}
