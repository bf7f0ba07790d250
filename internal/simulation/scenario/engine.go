package scenario

import (
	"errors"
	"fmt"

	"llmmemory/internal/simulation/cost"
)

// DataSheet is the engine whose constants were chosen by hand for vLLM of 2023. They were not compared with
// measurements on the GPU.
const DataSheet = "data-sheet"

// Engines returns the valid names for Machine.Engine.
func Engines() []string { return []string{cost.VLLM, DataSheet} }

// chooseEngine sets the times of the engine that the scenario names. By default that is vLLM V1 if there are constants
// for the GPU, otherwise DataSheet. The name of the chosen engine is stored in the plan's scenario.
func (p *Plan) chooseEngine() error {
	s := &p.Scenario
	switch s.Engine {
	case DataSheet:
		return nil
	case "", cost.VLLM:
	default:
		return fmt.Errorf("engine %q: %w: there are %s (V1) and %s; for other engines and releases, use llmsim calibrate "+
			"with your measurements", s.Engine, cost.ErrUnknown, cost.VLLM, DataSheet)
	}
	if s.Engine == "" && s.Cost != "" { // the cost file has the times
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
