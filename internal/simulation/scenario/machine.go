package scenario

import (
	"slices"
	"strings"

	"llmmemory/internal/simulation/cost"
)

// A Machine is a model on GPUs, with the times of iterations: a setup, or Model on GPU with the fields below them. Names
// are of llmsim list, or files.
type Machine struct {
	Setup string `json:"setup,omitempty"` // PaperSetup
	Model string `json:"model,omitempty"`
	GPU   string `json:"gpu,omitempty"`

	Workers int    `json:"workers,omitempty"`      // that share each layer; 1
	Stages  int    `json:"stages,omitempty"`       // each with Workers (pipeline parallelism); 1
	Weights string `json:"weights,omitempty"`      // the numbers they are in; the model's
	KV      string `json:"kv,omitempty"`           // the same of keys and values
	Apart   bool   `json:"expertsApart,omitempty"` // experts are whole on one worker each

	SwapGB float64 `json:"swapGB,omitempty"` // GB/s to what blocks are swapped to, at most; the link to the CPU
	Engine string  `json:"engine,omitempty"` // of Model on GPU: one of Engines; see chooseEngine
	Cost   string  `json:"cost,omitempty"`   // a file of llmsim calibrate, whose times stand instead of the setup's

	// MemoryUtilization is the part of each GPU's memory that may be used, vLLM's gpu_memory_utilization; the setup's,
	// and DefaultMemoryUtilization for Model on GPU.
	MemoryUtilization float64 `json:"memoryUtilization,omitempty"`
}

func (m *Machine) check() error {
	switch {
	case m.Engine != "" && m.Cost != "":
		return bad("times are those of the engine %q or of the cost file %q, not of both", m.Engine, m.Cost)
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
