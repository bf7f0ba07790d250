package scenario

import (
	"errors"
	"slices"
	"strings"

	"llmmemory/internal/sim/cost"
)

// DataSheet is the engine whose constants were chosen by hand for vLLM of 2023, and compared with
// no measurement of the GPU.
const DataSheet = "data-sheet"

// defaultEngine is what the simulated schedulers are of.
const defaultEngine = "vllm"

// Engines returns the names that Scenario.Engine takes, besides releases.
func Engines() []string { return append(slices.Clone(cost.Engines()), DataSheet) }

// chooseEngine gives a model on a GPU the times of an engine: the one that is named, or else vLLM's
// newest release of which something is published on the GPU, or else DataSheet. The scenario of the
// plan names which one it is.
func (p *Plan) chooseEngine() error {
	s := &p.Scenario
	name := s.Engine
	switch {
	case name == DataSheet || name == "" && s.Cost != "": // a cost file has its own times
		return nil
	case name == "":
		name = defaultEngine
	}
	fitted, err := cost.OpenEngine(name, p.Setup.GPU.Name)
	if s.Engine == "" && errors.Is(err, cost.ErrUnknown) {
		s.Engine = DataSheet
		return nil
	}
	if err != nil {
		return err
	}
	if s.Engine == "" {
		s.Engine = strings.Replace(fitted.Name, " ", "-", 1) // with its release
	}
	p.Setup = p.Setup.On(fitted)
	return nil
}
