package cost

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// VLLM names the engine whose constants are fitted to published measurements: vLLM V1.
const VLLM = "vllm"

// A Fitted is vLLM V1 on a GPU: constants that were fitted to one half of what is published, and the errors on the
// other half.
type Fitted struct {
	Name    string // of the engine, and its releases
	GPU     string
	Engine  Engine
	HeldOut Fit // whose Points are those of both halves
	Worst   Published

	types     []string // of the weights of the points
	smallKV   bool     // some have keys and values in 8 bits
	elsewhere []string // the GPUs that its constants are from, if nothing is published on GPU
}

// engineFile is the format of vllm.json.
type engineFile struct {
	Name      string            `json:"name"`
	Source    string            `json:"source"`
	GPUs      map[string]Engine `json:"gpus"`
	Elsewhere elsewhere         `json:"elsewhere"`
}

// elsewhere has the constants for GPUs without published measurements.
type elsewhere struct {
	Constants Engine                     `json:"constants"` // which the measured GPUs have in common
	GPUs      map[string]json.RawMessage `json:"gpus"`      // what differs from Constants
	// LeftOut is how far off all points of a GPU were when the constants were fitted without it.
	LeftOut map[string]Fit `json:"left_out"`
}

//go:embed vllm.json
var vllmFile []byte

var openVLLM = sync.OnceValue(func() (f engineFile) {
	embedded(vllmFile, &f)
	return f
})

// MeasuredGPUs returns the GPUs on which measurements of vLLM V1 are published, sorted.
func MeasuredGPUs() []string { return slices.Sorted(maps.Keys(openVLLM().GPUs)) }

// OtherGPUs returns the GPUs for which vLLM V1 has the constants of MeasuredGPUs, sorted.
func OtherGPUs() []string { return slices.Sorted(maps.Keys(openVLLM().Elsewhere.GPUs)) }

// OpenVLLM returns vLLM V1 on a GPU. The error wraps ErrUnknown if there are no constants for it.
func OpenVLLM(gpu string) (Fitted, error) {
	f := openVLLM()
	if e, ok := f.GPUs[gpu]; ok {
		of := Fitted{Name: f.Name, GPU: gpu, Engine: e}
		points := pointsOn(gpu)
		of.HeldOut, of.Worst = errorsOf(points.HeldOut)
		of.HeldOut.Points = points.Points
		of.learn(points)
		return of, nil
	}
	own, ok := f.Elsewhere.GPUs[gpu]
	if !ok {
		return Fitted{}, fmt.Errorf("engine %q: %w: it has no constants for %q, but for %s; measure, and use llmsim calibrate",
			VLLM, ErrUnknown, gpu, strings.Join(slices.Concat(MeasuredGPUs(), OtherGPUs()), ", "))
	}
	of := Fitted{Name: f.Name, GPU: gpu, Engine: f.Elsewhere.Constants}
	embedded(own, &of.Engine)
	for _, on := range slices.Sorted(maps.Keys(f.Elsewhere.LeftOut)) {
		of.elsewhere = append(of.elsewhere, on)
		of.HeldOut.Worst = max(of.HeldOut.Worst, f.Elsewhere.LeftOut[on].Worst)
		of.HeldOut.Median = max(of.HeldOut.Median, f.Elsewhere.LeftOut[on].Median)
		of.learn(pointsOn(on))
	}
	return of, nil
}

// learn adds what published points are of.
func (f *Fitted) learn(p gpuPoints) {
	f.types = append(f.types, p.Types...)
	f.smallKV = f.smallKV || p.SmallKV
}

// On returns the setup with the times of an engine.
func (s Setup) On(f Fitted) Setup {
	s.Engine, s.Fitted = f.Engine, &f
	return s
}

func (f Fitted) String() string {
	if f.elsewhere != nil {
		return fmt.Sprintf("%s on %s: not fitted on this GPU; constants as measured on %s, with this GPU's "+
			"data sheet; each of those GPUs predicted from the others: median error up to %.0f %%, worst %.0f %%",
			f.Name, f.GPU, strings.Join(f.elsewhere, ", "), 100*f.HeldOut.Median, 100*f.HeldOut.Worst)
	}
	return fmt.Sprintf("%s on %s: fitted to half of %d published points, errors of the other half: median %.0f %%, "+
		"worst %s (%s, %s)",
		f.Name, f.GPU, f.HeldOut.Points, 100*f.HeldOut.Median, f.worst(), f.Worst, f.Worst.measured())
}

// worst returns the largest error, and in which direction.
func (f Fitted) worst() string {
	direction := "too fast"
	if f.Worst.Error() > 0 {
		direction = "too slow"
	}
	return fmt.Sprintf("%.0f %% %s", 100*f.HeldOut.Worst, direction)
}
