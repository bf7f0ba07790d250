package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/paper"
	"llmmemory/internal/serve"
	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v0"
	"llmmemory/internal/vllm/v1/adapter"
	"llmmemory/internal/vllm/v1/kvcache"
	"llmmemory/internal/vllm/v1/sched"
)

// ErrConfig is wrapped by every complaint about a configuration.
var ErrConfig = errors.New("bad configuration")

// Server is what a system is given: memory and limits. Zero fields are as the
// paper has them for OPT-13B on one A100 with 40 GB (sim/PAPER.md §1), but for those
// that say otherwise.
type Server struct {
	System string `json:"system"` // one of Systems

	BlockSize int     `json:"blockSize"` // tokens; 16
	Blocks    int     `json:"blocks"`    // of the GPU; 983
	CPUBlocks int     `json:"cpuBlocks"` // of the swap space; 20 GiB of OPT-13B's: 1,638
	MaxTokens int     `json:"maxTokens"` // of an iteration; 2,560
	MaxSeqs   int     `json:"maxSeqs"`   // 256; sosp and Orca count a running request once, see paper.Limits
	MaxLen    int     `json:"maxLen"`    // tokens of a sequence; 2,048: for Orca a power of two of blocks
	Watermark float64 `json:"watermark"` // part of the blocks; 0.01, below 0: none; vllm-v1 has none by default

	Prefix    int  `json:"prefix,omitempty"`    // tokens that every prompt begins with; sosp keeps their blocks, vllm-v1 finds them in its cache
	Swap      bool `json:"swap,omitempty"`      // preempt by swapping: sosp, vllm-v0
	Chunked   bool `json:"chunked,omitempty"`   // compute prompts in chunks: vllm-v0; vllm-v1 always does
	NoCaching bool `json:"noCaching,omitempty"` // vllm-v1 without prefix caching
	Caching   bool `json:"caching,omitempty"`   // vllm-v0 with prefix caching

	Batch int `json:"batch,omitempty"` // requests of a static batch: fastertransformer; 5
}

type system struct {
	name    string
	about   string
	groups  bool // a request may have several sequences; else it becomes several requests
	content bool // reads tokens: see Server.usesTokens
	build   func(s Server, drafts int) (serve.Scheduler, error)
}

var systems = []system{
	{"fastertransformer", "static batches, padded, nobody joins", true, false, buildStatic},
	{"orca-max", "Orca reserving the longest sequence for each", true, false, orca(paper.Max)},
	{"orca-pow2", "Orca reserving the next power of two of the output", true, false, orca(paper.Pow2)},
	{"orca-oracle", "Orca knowing the output's length", true, false, orca(paper.Oracle)},
	{"sosp", "the paper's own vLLM: paged, all-or-nothing groups", true, false, buildSOSP},
	{"vllm-v0", "vLLM v0.6.4: prefills first, CPU swap", false, true, buildV0},
	{"vllm-v1", "vLLM V1: chunked prefills, prefix caching", false, true, buildV1},
}

// Systems are the names of all systems, from the oldest idea to the newest.
func Systems() []string {
	var names []string
	for i := range systems {
		names = append(names, systems[i].name)
	}
	return names
}

// About says in a few words what a system does.
func About(name string) string {
	s, err := find(name)
	if err != nil {
		return ""
	}
	return s.about
}

func find(name string) (*system, error) {
	i := slices.IndexFunc(systems, func(s system) bool { return s.name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: there is no system %q: want %s", ErrConfig, name, strings.Join(Systems(), ", "))
	}
	return &systems[i], nil
}

// Complete fills in what is zero. What is complete stays as it is.
func (s Server) Complete() Server {
	or := func(v *int, otherwise int) {
		if *v == 0 {
			*v = otherwise
		}
	}
	or(&s.BlockSize, 16)
	or(&s.Blocks, 983)
	or(&s.CPUBlocks, 1638)
	or(&s.MaxTokens, 2560)
	or(&s.MaxSeqs, 256)
	or(&s.MaxLen, 2048)
	or(&s.Batch, 5)
	if s.Watermark == 0 {
		s.Watermark = 0.01
		if s.System == "vllm-v1" {
			s.Watermark = -1
		}
	}
	return s
}

// watermark is what a block manager takes, where none is 0.
func (s Server) watermark() float64 { return max(0, s.Watermark) }

// usesTokens says whether the scheduler reads what requests say.
func (s Server) usesTokens() bool {
	return s.System == "vllm-v1" && !s.NoCaching || s.System == "vllm-v0" && s.Caching
}

func buildStatic(s Server, _ int) (serve.Scheduler, error) {
	return paper.NewStatic(paper.StaticConfig{Batch: s.Batch, Longest: s.MaxLen - 8}) // the artifact's 2,040
}

func (s Server) limits() paper.Limits { return paper.Limits{Tokens: s.MaxTokens, Seqs: s.MaxSeqs} }

func orca(policy paper.Policy) func(Server, int) (serve.Scheduler, error) {
	return func(s Server, _ int) (serve.Scheduler, error) {
		config := paper.OrcaConfig{Block: s.BlockSize, Blocks: s.Blocks, Longest: s.MaxLen, Policy: policy}
		return paper.NewOrca(config, s.limits())
	}
}

func buildSOSP(s Server, _ int) (serve.Scheduler, error) {
	config := paper.Config{Block: s.BlockSize, GPU: s.Blocks, CPU: s.CPUBlocks, Watermark: s.watermark(), Prefix: s.Prefix}
	return paper.NewSOSP(config, s.limits(), s.Swap)
}

func buildV0(s Server, _ int) (serve.Scheduler, error) {
	config := v0.SchedulerConfig{
		Manager:   v0.Config{Block: s.BlockSize, GPU: s.Blocks, CPU: s.CPUBlocks, Watermark: s.watermark(), Caching: s.Caching},
		MaxTokens: s.MaxTokens, MaxSeqs: s.MaxSeqs, MaxLen: s.MaxLen, Chunked: s.Chunked,
	}
	if s.Swap {
		config.Mode = v0.Swap
	}
	return v0.NewScheduler(config)
}

func buildV1(s Server, drafts int) (serve.Scheduler, error) {
	return adapter.New(sched.Config{
		MaxTokens: s.MaxTokens, MaxSeqs: s.MaxSeqs, Drafts: drafts, Lookahead: drafts,
		Cache: kvcache.Config{
			Blocks: s.Blocks + 1, Groups: []kvcache.Group{{Kind: kvcache.Full, Block: s.BlockSize}},
			Caching: !s.NoCaching, Hash: blockhash.NewFast(), MaxModelLen: s.MaxLen, Watermark: s.watermark(),
		},
	})
}
