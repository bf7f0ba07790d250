package cost

import (
	"cmp"
	"fmt"
)

// A Setup is a language model on GPUs, with the constants that determine its iteration times and its memory.
type Setup struct {
	Name    string
	LLM     LLM
	GPU     GPU
	Workers int // tensor parallelism: GPUs that share each layer, with one block table

	Stages        int     // pipeline parallelism: each stage has some of the layers, on Workers GPUs; 0 means 1
	ExpertsApart  bool    // expert parallelism: each expert is whole on one worker
	SwapGigabytes float64 // upper limit of swapping in GB/s, for example a disk's; if 0, the link to the CPU is the limit

	Linear   *Linear   // nil if times come from a roofline
	Measured *Measured // source of Linear; nil if it is not a cost file
	Engine   Engine
	Fitted   *Fitted // source of Engine; nil if it was chosen by hand
	Memory   Memory

	// Sequences is the highest number of sequences in an iteration of vLLM V1. vLLM V1's profiling run reserves memory
	// for this number of sequences (activationsV1). If Sequences is 0, memory is reserved as in the paper's artifact.
	Sequences int
	// Sorts means that vLLM V1's sampler sorts the logits of all sequences, which takes more memory. vLLM up to 0.15
	// does so if FlashInfer is not installed, because it then uses PyTorch's sampler.
	Sorts bool
}

// Linear is a line fitted to measurements, in ms. Base must be positive: if iterations took no time, a
// simulation would not end.
type Linear struct {
	Base    float64 `json:"base" range:"1e-6 1e9"`
	Seq     float64 `json:"per_seq" range:"0 1e9"`
	Context float64 `json:"per_context_token" range:"0 1e9"`
	Prompt  float64 `json:"per_prompt_token" range:"0 1e9"`
}

// Engine has constants of the serving software, and the fractions of a GPU's peak rates that this software reaches.
type Engine struct {
	Weights       float64 `json:"weights" range:"0.001 1"`    // fraction of the memory's bandwidth when weights are read
	Compute       float64 `json:"compute" range:"0.001 1"`    // fraction of the FLOPS in linear layers
	ExpertCompute float64 `json:"expert_compute" range:"0 1"` // the same in the experts of a mixture; default Compute
	// highest rate in GB/s at which one multiprocessor reads weights; 0 means no limit
	Processor       float64 `json:"multiprocessor_gb_s" range:"0 1e9"`
	Attention       float64 `json:"attention" range:"0.001 1"`        // fraction of the memory's bandwidth when keys and values are read
	PromptAttention float64 `json:"prompt_attention" range:"0.001 1"` // fraction of the FLOPS in attention
	// number of times that the states between the matrices of a layer are written and read
	Activations float64 `json:"activations" range:"0 1e9"`
	// 0 if a key is read once for all query heads that share it, 1 if it is read once for each of them
	Reread     float64 `json:"kv_reread" range:"0 1"`
	HostLink   float64 `json:"host_link" range:"0.001 1"`   // fraction of the link to the CPU
	WorkerLink float64 `json:"worker_link" range:"0.001 1"` // fraction of the link between workers
	AllReduce  float64 `json:"all_reduce_us" range:"0 1e9"` // latency of a small one; default the GPU's
	Base       float64 `json:"base_ms" range:"0 1e9"`       // per iteration
	Layer      float64 `json:"per_layer_ms" range:"0 1e9"`  // launches, norms, gaps
	// time to launch a layer that computes prompts, without CUDA graphs; launches overlap the GPU's work
	PromptLayer float64 `json:"prompt_layer_ms" range:"0 1e9"`
	Seq         float64 `json:"per_seq_ms" range:"0 1e9"` // scheduling, sampling, detokenizing
	// 0 if two simultaneous activities take as long as the longer one, 1 if they take up to 19 % more (see
	// Model.larger)
	Rounded float64 `json:"rounded" range:"0 1"`
	Copy    float64 `json:"per_copy_us" range:"0 1e9"` // of one copy between GPU and CPU
}

// DefaultEngine has constants for vLLM of 2023, for all models. They were chosen by hand. Times computed with them were
// compared with the times below (README.md has the errors):
//
//   - OPT-13B on an A100 with 40 GB: the times of a Linear model that was fitted to the paper's Fig. 13, and
//     FasterTransformer's logs (simulation/PAPER.md §1, §3)
//   - OPT-13B and OPT-66B on an A100 with 80 GB: DistServe's published profiles of vLLM and of its own engine
//
// For Layer and Seq the sources disagree, and the values are in between. For example, a sequence of OPT-13B takes
// 0.30 ms in the Linear model, and 0.06 to 0.12 ms in DistServe's profile of vLLM. HostLink, WorkerLink, Base and Copy
// are assumptions.
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

// New returns a setup of a model on a number of GPUs, with times from a roofline. Model and GPU are built-in
// names or files. The error wraps ErrUnknown or ErrFile.
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
	line := Linear{Base: 1}
	if s.Linear != nil {
		line = *s.Linear
	}
	for _, part := range []struct {
		name string
		err  error
	}{
		{"", s.LLM.check()}, {"", checkRanges(s.GPU)}, {"linear_ms: ", checkRanges(line)}, {"engine: ", checkRanges(s.Engine)},
		{"memory: ", checkRanges(s.Memory)},
	} {
		if part.err != nil {
			return fmt.Errorf("%s%w", part.name, part.err)
		}
	}
	if s.GPU.rate(s.LLM.Computed) == 0 {
		return fmt.Errorf("%s is computed in %s, which %s cannot do", s.LLM.Name, s.LLM.Computed, s.GPU.Name)
	}
	return cmp.Or(s.LLM.splits(s.Workers), s.checkParallel())
}
