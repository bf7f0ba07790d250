package scenario

import (
	"errors"
	"fmt"

	"llmmemory/internal/simulation/cost"
)

// DataSheet is the engine whose constants were chosen by hand for vLLM of 2023, and compared with
// no measurement of the GPU.
const DataSheet = "data-sheet"

// Engines returns the names that Scenario.Engine takes.
func Engines() []string { return []string{cost.VLLM, DataSheet} }

// chooseEngine gives a model on a GPU the times of an engine: the one that is named, or else vLLM V1's if it has
// constants for the GPU, or else DataSheet's. The scenario of the plan names which one it is.
func (p *Plan) chooseEngine() error {
	s := &p.Scenario
	switch s.Engine {
	case DataSheet:
		return nil
	case "", cost.VLLM:
	default:
		return fmt.Errorf("engine %q: %w: there are %s (V1) and %s; measure other engines and releases, and use llmsim "+
			"calibrate", s.Engine, cost.ErrUnknown, cost.VLLM, DataSheet)
	}
	if s.Engine == "" && s.Cost != "" { // a cost file has its own times
		return nil
	}
	fitted, err := cost.OpenVLLM(p.Setup.GPU.Name)
	if s.Engine == "" && errors.Is(err, cost.ErrUnknown) {
		s.Engine = DataSheet
		return nil
	}
	if err != nil {
		return err
	}
	s.Engine = cost.VLLM
	p.Setup = p.Setup.On(fitted)
	return nil
}
