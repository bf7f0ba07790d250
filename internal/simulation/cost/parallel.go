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
		return fmt.Errorf("--experts-apart: %s is no mixture of experts", s.LLM.Name)
	case s.ExpertsApart && s.LLM.Experts%s.Workers != 0:
		return fmt.Errorf("%d workers cannot share the %d experts of %s evenly", s.Workers, s.LLM.Experts, s.LLM.Name)
	case s.Linear != nil && (s.stages() > 1 || s.ExpertsApart):
		return fmt.Errorf("--stages and --experts-apart cannot be used with measured times, which are of one arrangement of GPUs")
	}
	return checkRange("swap_gb_s", s.SwapGigabytes, "0", "1e9")
}

// unmeasured names the features of the setup for which there is no built-in measurement.
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

// blockBytes returns the bytes of a block on one GPU, which has the layers of one stage.
func (s Setup) blockBytes(tokens int) int64 {
	return s.LLM.kvBytes(s.Workers, tokens) / int64(s.stages())
}

// stageWeights returns the bytes of weights on the GPU with the most weights. With several stages, no GPU has both
// the embedding (first stage) and the head (last stage).
func (s Setup) stageWeights() float64 {
	n, l := float64(s.stages()), s.LLM
	if n == 1 {
		return l.weightBytes(s.Workers)
	}
	rest := float64(l.Parameters) - l.matrices(1)
	return l.ParameterBytes*l.layerMatrices(s.Workers)/n + l.outerBytes()*(l.headMatrix(s.Workers)+rest)
}

// pipeline changes the times of m for pipeline parallelism. With n stages, n batches are in progress at once (vLLM's
// max_concurrent_batches), and each has 1/n of the sequences. Between two tokens of a sequence, each stage computes all
// n batches, one after another. Each batch reads all weights, as without stages. Engine.Base counts once for each
// stage. Times that grow with the number of tokens are divided by n. Between stages, the states of all tokens are sent.
//
// The times are a lower bound: they assume equally long stages without waits. The time to compute the logits is divided
// by n, although only the last stage has the head.
func (s Setup) pipeline(m *Model) {
	if s.stages() == 1 {
		return
	}
	n := float64(s.stages())
	m.base += (n - 1) * milli * s.Engine.Base // roofline added one
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

// experts has the costs of a mixture of experts on one worker.
type experts struct {
	all     float64 // seconds to read all experts
	unused  float64 // the probability that a token does not use a given expert
	token   float64 // seconds to compute a token
	picks   float64 // experts of a token
	workers float64 // with expert parallelism, the number of workers; otherwise 1
	batches float64 // of an iteration: the number of stages
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

// seconds returns how long it takes to read the experts that n tokens use, and to compute the tokens. Tokens are
// assumed to choose experts independently and with equal probabilities. An expert is then read with the probability
//
//	1 - unusedⁿ
//
// With several stages, each batch has n/x.batches tokens, which take the place of n here.
//
// With expert parallelism, all workers wait for the worker with the most tokens. A token counts once for each of its
// experts. If n tokens are divided among w workers at random, this worker has about
//
//	n/w + √(2 n/w ln w)
//
// tokens (Raab and Steger, "Balls into bins", 1998).
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

func (s Setup) swapLink() float64 {
	link := s.GPU.HostLink * s.Engine.HostLink
	if s.SwapGigabytes > 0 {
		return min(link, s.SwapGigabytes)
	}
	return link
}

// int4Bytes is the size in bytes of a 4-bit weight of AWQ or GPTQ, with its part of the scale and of the zero point.
// A group of 128 weights has a scale of 16 bits and a zero point of 4 bits.
const int4Bytes = (4 + 20.0/128) / 8

// fp4Bytes is the size of a 4-bit weight in NVFP4, with its part of the 8-bit scale of a group of 16 weights.
const fp4Bytes = (4 + 8.0/16) / 8

// Quantised returns the setup with other number types. The parameter weights is the type of the weights, and kv is the
// type of the keys and values. If a parameter is "", its type does not change.
//
// int4 and fp4 apply only to the matrices of layers, because AWQ, GPTQ and NVFP4 usually leave the embedding, the head
// and the norms in 16 bits. Checkpoints in fp8 and int8 usually leave them in 16 bits, too. Quantised nevertheless
// applies fp8 and int8 to all weights, because the engines' constants were fitted with this assumption.
//
// Linear layers compute in fp8, int8 or fp4 if the weights have this type. With int4 they compute in fp16. The error
// wraps ErrFile.
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
		return s, fmt.Errorf("%w: %s: the times were measured with other number formats than weights in %q, keys and values "+
			"in %q", ErrFile, s.Name, weights, kv)
	}
	if err := s.check(); err != nil {
		return s, fmt.Errorf("%w: %s: %w", ErrFile, s.Name, err)
	}
	return s, nil
}
