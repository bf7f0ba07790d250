package sim

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/paper"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v0"
	"llmmemory/internal/scheduling/vllm/v1/adapter"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// Memory says how a system manages the memory of keys and values.
type Memory int

const (
	Paged    Memory = iota // blocks anywhere in memory, with block tables
	Reserved               // contiguous blocks for the whole life of each sequence
	Static                 // one slot of a batch for each sequence
)

// A System describes a scheduler with its memory manager, and says which features it has. Settings of a
// Server for other features have no effect.
type System struct {
	Name   string
	Label  string // in figures
	About  string // short description
	Memory Memory

	Groups bool // a request may have several sequences; if false, each answer is a request
	Beams  bool // beam search
	Drafts bool // verifies draft tokens

	CanSwap          bool // preempts by swapping, if Server.Swap is set
	UsesCPUBlocks    bool // has a swap space
	CanChunk         bool // computes prompts in chunks, if Server.Chunked is set
	Chunks           bool // always computes prompts in chunks
	CanCachePrefixes bool // caches prefixes, if Server.Caching is set
	CachesPrefixes   bool // caches prefixes, unless Server.NoCaching is set
	KeepsPrefix      bool // never frees the blocks of Server.Prefix
	UsesWatermark    bool // admission leaves the fraction Server.Watermark of the blocks free
	UsesLimits       bool // MaxNumBatchedTokens and MaxNumSeqs limit an iteration
	UsesBatchSize    bool
	NullBlock        bool // block 0 is never used

	DefaultWatermark float64 // 0 means none

	policy paper.Policy // for Reserved
	build  func(s Server, drafts int) (serve.Scheduler, error)
	ample  bool // Config.Ample is supported
}

var systems = []System{
	{
		Name: "fastertransformer", Label: "FasterTransformer", About: "static batches, padded, no request joins",
		Memory: Static,
		Groups: true, UsesBatchSize: true, build: buildStatic,
	},
	orca("orca-max", "Orca (Max)", "Orca reserving the longest sequence for each", paper.Max),
	orca("orca-pow2", "Orca (Pow2)", "Orca reserving the next power of two of the output", paper.Pow2),
	orca("orca-oracle", "Orca (Oracle)", "Orca knowing the output's length", paper.Oracle),
	{
		Name: "sosp", Label: "vLLM (paper's)", About: "the paper's own vLLM: paged, all-or-nothing groups",
		Groups: true, Beams: true, CanSwap: true, UsesCPUBlocks: true, KeepsPrefix: true, UsesWatermark: true,
		UsesLimits:       true,
		DefaultWatermark: 0.01, build: buildSOSP,
	},
	{
		Name: "vllm-v0", Label: "vLLM V0", About: "vLLM v0.6.4: prefills first, CPU swap",
		CanSwap: true, UsesCPUBlocks: true, CanChunk: true, CanCachePrefixes: true, UsesWatermark: true, UsesLimits: true,
		DefaultWatermark: 0.01, build: buildV0,
	},
	{
		Name: "vllm-v1", Label: "vLLM V1", About: "vLLM V1: chunked prefills, prefix caching",
		Drafts: true, Chunks: true, CachesPrefixes: true, UsesWatermark: true, UsesLimits: true, NullBlock: true,
		build: buildV1, ample: true,
	},
}

func orca(name, label, about string, policy paper.Policy) System {
	return System{
		Name: name, Label: label, About: about, Memory: Reserved, policy: policy,
		Groups: true, Beams: true, UsesLimits: true, build: buildOrca(policy),
	}
}

// Systems returns the names of all systems, in the order in which their ideas were published.
func Systems() []string { return SystemsThat(func(*System) bool { return true }) }

// SystemsThat returns the names of the systems that satisfy f.
func SystemsThat(f func(*System) bool) []string {
	var names []string
	for i := range systems {
		if f(&systems[i]) {
			names = append(names, systems[i].Name)
		}
	}
	return names
}

// Lookup returns the system with the given name; "" means DefaultSystem. The error wraps ErrConfig and lists the
// names.
func Lookup(name string) (*System, error) {
	if name == "" {
		name = DefaultSystem
	}
	i := slices.IndexFunc(systems, func(s System) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: there is no system %q: want %s", ErrConfig, name, strings.Join(Systems(), ", "))
	}
	return &systems[i], nil
}

func buildStatic(s Server, _ int) (serve.Scheduler, error) {
	// The artifact's limit is 2,040 for models with 2,048.
	return paper.NewStatic(paper.StaticConfig{BatchSize: s.BatchSize, MaxModelLen: s.MaxModelLen - 8})
}

func (s Server) limits() paper.Limits {
	return paper.Limits{MaxNumBatchedTokens: s.MaxNumBatchedTokens, MaxNumSeqs: s.MaxNumSeqs}
}

func buildOrca(policy paper.Policy) func(Server, int) (serve.Scheduler, error) {
	return func(s Server, _ int) (serve.Scheduler, error) {
		config := paper.OrcaConfig{BlockSize: s.BlockSize, NumGPUBlocks: s.NumGPUBlocks, MaxModelLen: s.MaxModelLen,
			Policy: policy}
		return paper.NewOrca(config, s.limits())
	}
}

func buildSOSP(s Server, _ int) (serve.Scheduler, error) {
	config := paper.Config{BlockSize: s.BlockSize, NumGPUBlocks: s.NumGPUBlocks, NumCPUBlocks: s.NumCPUBlocks,
		Watermark: s.watermark(), Prefix: s.Prefix}
	return paper.NewSOSP(config, s.limits(), s.Swap)
}

func buildV0(s Server, _ int) (serve.Scheduler, error) {
	config := v0.SchedulerConfig{
		Manager: v0.Config{BlockSize: s.BlockSize, NumGPUBlocks: s.NumGPUBlocks, NumCPUBlocks: s.NumCPUBlocks,
			Watermark: s.watermark(), EnablePrefixCaching: s.Caching},
		MaxNumBatchedTokens: s.MaxNumBatchedTokens, MaxNumSeqs: s.MaxNumSeqs, MaxModelLen: s.MaxModelLen, Chunked: s.Chunked,
	}
	if s.Swap {
		config.Mode = v0.Swap
	}
	return v0.NewScheduler(config)
}

// BlockHash computes the block hashes of all prefix caches of V1 in this process. The router of a fleet compares the
// hashes of a prompt with those in the caches of replicas, so all must use the same function.
var BlockHash = blockhash.NewFast()

func buildV1(s Server, drafts int) (serve.Scheduler, error) {
	return adapter.New(sched.Config{
		AsVLLM:      true,
		Limits:      sched.Limits{MaxNumBatchedTokens: s.MaxNumBatchedTokens, MaxNumSeqs: s.MaxNumSeqs},
		Speculation: sched.Speculation{NumSpeculativeTokens: drafts, NumLookaheadTokens: drafts},
		Cache: kvcache.Config{
			NumGPUBlocks: s.NumGPUBlocks + 1, Groups: []kvcache.Group{{Kind: kvcache.Full, BlockSize: s.BlockSize}},
			EnablePrefixCaching: !s.NoCaching, EnableEvents: s.Events && !s.NoCaching, Hash: BlockHash,
			MaxModelLen: s.MaxModelLen, Watermark: s.watermark(),
		},
	})
}
