package replay

import (
	"encoding/json"

	"llmmemory/internal/scheduling/paper"
)

// Init is the first line of a recording of vLLM V0, of the paper's system or of Orca: the configuration.
type Init struct {
	Op        string  `json:"op"`
	Flavour   string  `json:"flavour"` // "": V0; sosp23, orca-constant, orca-power2, orca-oracle
	Block     int     `json:"block_size"`
	GPU       int     `json:"num_gpu_blocks"`
	CPU       int     `json:"num_cpu_blocks"`
	Watermark float64 `json:"watermark"`
	Reserved  *int    `json:"watermark_blocks"` // null: not recorded
	Window    *int    `json:"sliding_window"`   // null: none
	WindowCap *int    `json:"max_block_sliding_window"`
	Caching   bool    `json:"enable_caching"`

	// Orca only.
	Blocks    int             `json:"num_blocks"`
	Largest   int             `json:"max_block"`
	FreeLists map[int][]int32 `json:"free_lists"`

	// Scheduler only.
	MaxTokens int     `json:"max_num_batched_tokens"` // 0: no scheduler
	MaxSeqs   int     `json:"max_num_seqs"`
	MaxLen    int     `json:"max_model_len"`
	Mode      *string `json:"preemption_mode"` // null: vLLM's choice
	Chunked   bool    `json:"chunked_prefill"`
}

// argumentNames has the names of fields that are usually arguments of an operation, not results. Such a field is
// compared only if the replay's result has it, too.
var argumentNames = map[string]bool{
	"op": true, "group": true, "seqs": true, "seq": true, "parent": true, "child": true,
	"n": true, "tokens": true, "lookahead": true, "computed": true, "unseen": true,
	"context_len": true, "seq_len": true, "is_prompt": true, "sliding_window": true,
	"now": true, "id": true, "prompt": true, "output": true,
}

func (op *Op) tokens() int {
	if op.TokenIDs != nil {
		return len(op.TokenIDs)
	}
	return op.N
}

// comparedFields returns the recorded fields that must be compared with the result r. In a recording of V1 these are
// all fields of the recorded result. Other recordings do not separate the results of an operation from its arguments.
// From these recordings, comparedFields leaves out a field in argumentNames if r does not have it. It also leaves out
// the field free of an operation that failed.
func (op *Op) comparedFields(r result) map[string]json.RawMessage {
	if op.Result != nil {
		return op.Result
	}
	want := map[string]json.RawMessage{}
	for name, value := range op.answer {
		if _, known := r[name]; known || !argumentNames[name] {
			want[name] = value
		}
	}
	if op.Error != "" {
		delete(want, "free") // vLLM has failed half-way
	}
	return want
}

// An oldPlayer performs the operations of a recording of V0, of the paper's system or of Orca. play writes the result
// of an operation to r. free returns how many blocks are free, as one count or as one for each device. This is part of
// every result, except those of add and of operations that failed.
type oldPlayer interface {
	play(op *Op, r result)
	free() any
	check() error
}

type checkedPlayer struct{ oldPlayer }

func (p checkedPlayer) state(op *Op, r result) {
	if _, answered := r["free"]; !answered && op.Name != "add" && op.Error == "" {
		r["free"] = p.free()
	}
	must(p.check())
}

func newOldPlayer(c *Init) oldPlayer {
	switch c.Flavour {
	case "":
		if c.MaxTokens > 0 {
			return newV0Scheduler(c)
		}
		return newV0Manager(c)
	case "sosp23":
		return newSospManager(c)
	}
	return newOrca(c, oneOf("there is no flavour", c.Flavour, "none, sosp23, orca-oracle, orca-power2 or orca-constant",
		map[string]paper.Policy{"orca-oracle": paper.Oracle, "orca-power2": paper.Pow2, "orca-constant": paper.Max}))
}
