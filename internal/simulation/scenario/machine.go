package scenario

import (
	"slices"
	"strings"

	"llmmemory/internal/simulation/cost"
)

// A Machine is a model on GPUs, with the times of iterations. It is a named setup, or Model on GPU with the fields that
// follow. Names are those that llmsim list shows, or files.
type Machine struct {
	Setup string `json:"setup,omitempty"` // default PaperSetup
	Model string `json:"model,omitempty"`
	GPU   string `json:"gpu,omitempty"`

	Workers int    `json:"workers,omitempty"`      // tensor parallelism; default 1
	Stages  int    `json:"stages,omitempty"`       // pipeline parallelism, each stage with Workers; default 1
	Weights string `json:"weights,omitempty"`      // number format of the weights; default the model's
	KV      string `json:"kv,omitempty"`           // number format of keys and values; default the model's
	Apart   bool   `json:"expertsApart,omitempty"` // expert parallelism: each expert is whole on one worker

	SwapGB float64 `json:"swapGB,omitempty"` // GB/s, upper limit of swapping; default the speed of the link to the CPU
	Engine string  `json:"engine,omitempty"` // for Model on GPU, one of Engines; default: see chooseEngine
	Cost   string  `json:"cost,omitempty"`   // a file from llmsim calibrate; its times replace the setup's

	// MemoryUtilization is the fraction of each GPU's memory that may be used, vLLM's gpu_memory_utilization. The default
	// is the setup's, or DefaultMemoryUtilization for Model on GPU.
	MemoryUtilization float64 `json:"memoryUtilization,omitempty"`
}

func (m *Machine) check() error {
	switch {
	case m.Engine != "" && m.Cost != "":
		return bad("times come from the engine %q or from the cost file %q, not from both", m.Engine, m.Cost)
	case m.Setup != "" && (m.Model != "" || m.GPU != ""):
		return bad("the setup %q has a model and a GPU already: leave out %s", m.Setup,
			strings.Join(slices.DeleteFunc([]string{m.Model, m.GPU}, func(n string) bool { return n == "" }), " and "))
	case m.Workers < 0:
		return bad("%d workers: want at least 1", m.Workers)
	case m.Model == "" && m.GPU == "" &&
		(m.Engine != "" || m.Workers > 0 || m.Stages != 0 || m.Apart || m.Weights != "" || m.KV != ""):
		return bad("--engine, --workers, --stages, --experts-apart, --weights and --kv go with --model and --gpu: a setup has " +
			"its own")
	case m.GPU == "" && m.Model != "":
		return bad("a model needs a GPU: name one beside %q: %s, or a .json file", m.Model,
			strings.Join(cost.GPUs(), ", "))
	case m.Model == "" && m.GPU != "":
		return bad("a GPU needs a model: name one beside %q: %s, or a .json file", m.GPU, strings.Join(cost.LLMs(), ", "))
	case m.MemoryUtilization != 0 && !(m.MemoryUtilization > 0 && m.MemoryUtilization <= 1):
		return bad("a memory utilization of %v: want more than 0, and at most 1", m.MemoryUtilization)
	}
	return nil
}
