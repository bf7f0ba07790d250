package cost

import "fmt"

// A Setup is a language model on GPUs: what decides time and memory.
type Setup struct {
	Name    string
	LLM     LLM
	GPU     GPU
	Workers int // GPUs that share each layer (tensor parallelism) under one block table

	Stages        int     // that have a part of the layers each, on Workers GPUs (pipeline parallelism); 0: 1
	ExpertsApart  bool    // each expert is whole on one worker (expert parallelism), not shared by all
	SwapGigabytes float64 // GB/s at which blocks are swapped, at most, as to a disk; 0: as the link to the CPU

	Linear   *Linear   // nil: a roofline
	Measured *Measured // where Linear is from; nil: not a cost file
	Engine   Engine
	Fitted   *Fitted // where Engine is from; nil: chosen by hand
	Memory   Memory

	// Sequences is the largest number of sequences of an iteration of vLLM V1, whose profiling run reserves memory as
	// activationsV1 says; 0: Memory's is reserved, as in the paper's artifact.
	Sequences int
	// Sorts means that vLLM V1's sampler sorts the logits of all sequences, which takes more memory. PyTorch's sampler
	// does, which vLLM until 0.15 uses without FlashInfer.
	Sorts bool
}

// Linear is a line fitted to measurements, in ms.
type Linear struct {
	Base    float64 `json:"base"`
	Seq     float64 `json:"per_seq"`
	Context float64 `json:"per_context_token"`
	Prompt  float64 `json:"per_prompt_token"`
}

// Engine is the software, and how much of a GPU's peaks it reaches.
type Engine struct {
	Weights       float64 `json:"weights"`        // of the memory's bandwidth, when weights are read
	Compute       float64 `json:"compute"`        // of the FLOPS, in the linear layers
	ExpertCompute float64 `json:"expert_compute"` // the same, in the experts of a mixture; 0: Compute
	// rate at which one multiprocessor reads weights at most; 0: no limit
	Processor       float64 `json:"multiprocessor_gb_s"`
	Attention       float64 `json:"attention"`        // of the memory's bandwidth, when keys and values are read
	PromptAttention float64 `json:"prompt_attention"` // of the FLOPS, in attention
	// how often the states between the matrices of a layer go through memory
	Activations float64 `json:"activations"`
	// 0: a key is read once for all query heads that share it; 1: once for each
	Reread     float64 `json:"kv_reread"`
	HostLink   float64 `json:"host_link"`     // of the link to the CPU
	WorkerLink float64 `json:"worker_link"`   // of the link between workers
	AllReduce  float64 `json:"all_reduce_us"` // of few bytes; 0: what is assumed of the GPU
	Base       float64 `json:"base_ms"`       // an iteration
	Layer      float64 `json:"per_layer_ms"`  // what is neither bytes nor operations: launches, norms, gaps
	// launches of a layer where prompts are computed, without CUDA graphs; the GPU computes meanwhile
	PromptLayer float64 `json:"prompt_layer_ms"`
	Seq         float64 `json:"per_seq_ms"` // scheduling, sampling, decoding of text
	// 0: two things done at once take as long as the longer one; 1: up to 19 % more, see Model.larger
	Rounded float64 `json:"rounded"`
	Copy    float64 `json:"per_copy_us"` // of one copy between GPU and CPU
}

// DefaultEngine is vLLM of the paper's time. One set serves all models. It is
// compared with what is known of OPT-13B on an A100 with 40 GB (simulation/PAPER.md §1, §3: the
// calibrated line, FasterTransformer's logs) and of OPT-13B and OPT-66B with
// 80 GB (the profiles of vLLM and of its own engine that DistServe publishes).
//
// The figures were chosen by hand. Layer and Seq lie between sources that
// contradict each other: for a sequence the calibrated line has 0.30 ms, vLLM in
// DistServe 0.06 to 0.12. README.md says how far off the result is.
//
// HostLink, WorkerLink, Base and Copy are assumptions.
var DefaultEngine = Engine{
	Weights:         0.90,
	Compute:         0.60,
	Attention:       0.75,
	PromptAttention: 0.16, // 8.1e-6 ms × Σlen² for OPT-13B (DistServe's vLLM)
	HostLink:        0.80,
	WorkerLink:      0.70,
	Base:            1.0,
	Layer:           0.15,
	Seq:             0.12,
	Copy:            5,
}

// New is a roofline of a model on a number of GPUs, both by name or file.
// The error wraps ErrUnknown or ErrFile.
func New(llm, gpu string, workers int) (Setup, error) {
	s := Setup{Workers: workers, Engine: DefaultEngine, Memory: DefaultMemory}
	var err error
	if s.LLM, err = OpenLLM(llm); err != nil {
		return Setup{}, err
	}
	if s.GPU, err = OpenGPU(gpu); err != nil {
		return Setup{}, err
	}
	s.Name = fmt.Sprintf("%s on %d x %s", s.LLM.Name, workers, s.GPU.Name)
	if err := s.check(); err != nil {
		return Setup{}, fmt.Errorf("%w: %s: %w", ErrFile, s.Name, err)
	}
	return s, nil
}

func (s Setup) check() error {
	for _, check := range []func() error{s.LLM.check, s.GPU.check, func() error { return s.LLM.splits(s.Workers) },
		s.checkParallel} {
		if err := check(); err != nil {
			return err
		}
	}
	if s.GPU.rate(s.LLM.Computed) == 0 {
		return fmt.Errorf("%s is computed in %s, which %s cannot do", s.LLM.Name, s.LLM.Computed, s.GPU.Name)
	}
	if s.Linear != nil {
		if err := s.Linear.check(); err != nil {
			return fmt.Errorf("linear_ms: %w", err)
		}
	}
	if err := s.Engine.check(); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if err := s.Memory.check(); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	return nil
}

// A clock that stands still would never end a simulation: base is positive.
func (l Linear) check() error {
	return within(figure{"base", l.Base, 1e-6, 1e9}, figure{"per_seq", l.Seq, 0, 1e9},
		figure{"per_context_token", l.Context, 0, 1e9}, figure{"per_prompt_token", l.Prompt, 0, 1e9})
}

func (e Engine) check() error {
	const least, most = 1e-3, 1e9
	return within(
		figure{"weights", e.Weights, least, 1},
		figure{"compute", e.Compute, least, 1},
		figure{"multiprocessor_gb_s", e.Processor, 0, most},
		figure{"attention", e.Attention, least, 1},
		figure{"expert_compute", e.ExpertCompute, 0, 1},
		figure{"prompt_attention", e.PromptAttention, least, 1},
		figure{"activations", e.Activations, 0, most},
		figure{"kv_reread", e.Reread, 0, 1},
		figure{"host_link", e.HostLink, least, 1},
		figure{"worker_link", e.WorkerLink, least, 1},
		figure{"all_reduce_us", e.AllReduce, 0, most},
		figure{"base_ms", e.Base, 0, most},
		figure{"per_layer_ms", e.Layer, 0, most},
		figure{"prompt_layer_ms", e.PromptLayer, 0, most},
		figure{"per_seq_ms", e.Seq, 0, most},
		figure{"rounded", e.Rounded, 0, 1},
		figure{"per_copy_us", e.Copy, 0, most},
	)
}
