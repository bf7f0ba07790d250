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

// VLLM names the engine whose constants were fitted to published measurements: vLLM V1.
const VLLM = "vllm"

// A Fitted has the constants of vLLM V1 on a GPU. They were fitted to one half of the published points; the errors
// were measured on the other half.
type Fitted struct {
	Name    string // the engine and its releases
	GPU     string
	Engine  Engine
	HeldOut Fit       // errors on the other half; Points counts both halves
	Worst   Published // the point with the largest error

	types     []string // number formats of the weights in the points
	smallKV   bool     // some points have keys and values in 8 bits
	elsewhere []string // the GPUs to which the constants were fitted if no measurements on GPU are published
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
	Constants Engine                     `json:"constants"` // common to the measured GPUs
	GPUs      map[string]json.RawMessage `json:"gpus"`      // fields of Engine that differ from Constants
	// LeftOut has, for each measured GPU, the errors of constants that were fitted only to the other GPUs.
	LeftOut map[string]Fit `json:"left_out"`
}

//go:embed vllm.json
var vllmFile []byte

var openVLLM = sync.OnceValue(func() engineFile { return *embedded(vllmFile, new(engineFile)) })

// MeasuredGPUs returns the sorted names of the GPUs for which measurements of vLLM V1 are published.
func MeasuredGPUs() []string { return slices.Sorted(maps.Keys(openVLLM().GPUs)) }

// OtherGPUs returns the sorted names of the GPUs that have constants but no published measurements. Their constants
// were fitted to the measurements of MeasuredGPUs.
func OtherGPUs() []string { return slices.Sorted(maps.Keys(openVLLM().Elsewhere.GPUs)) }

// OpenVLLM returns the constants of vLLM V1 on a GPU. The error wraps ErrUnknown if there are none.
func OpenVLLM(gpu string) (Fitted, error) {
	f := openVLLM()
	if e, ok := f.GPUs[gpu]; ok {
		fitted := Fitted{Name: f.Name, GPU: gpu, Engine: e}
		points := pointsOn(gpu)
		fitted.HeldOut, fitted.Worst = errorsOf(points.HeldOut)
		fitted.HeldOut.Points = points.Points
		fitted.addFormats(points)
		return fitted, nil
	}
	changes, ok := f.Elsewhere.GPUs[gpu]
	if !ok {
		return Fitted{}, fmt.Errorf("engine %q: %w: it has constants for %s, not for %q; use llmsim calibrate with your "+
			"measurements", VLLM, ErrUnknown, strings.Join(slices.Concat(MeasuredGPUs(), OtherGPUs()), ", "), gpu)
	}
	fitted := Fitted{Name: f.Name, GPU: gpu, Engine: f.Elsewhere.Constants}
	embedded(changes, &fitted.Engine)
	for _, other := range slices.Sorted(maps.Keys(f.Elsewhere.LeftOut)) {
		fitted.elsewhere = append(fitted.elsewhere, other)
		fitted.HeldOut.Worst = max(fitted.HeldOut.Worst, f.Elsewhere.LeftOut[other].Worst)
		fitted.HeldOut.Median = max(fitted.HeldOut.Median, f.Elsewhere.LeftOut[other].Median)
		fitted.addFormats(pointsOn(other))
	}
	return fitted, nil
}

func (f *Fitted) addFormats(p gpuPoints) {
	f.types = append(f.types, p.Types...)
	f.smallKV = f.smallKV || p.SmallKV
}

// On returns the setup with the constants of f.
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

func (f Fitted) worst() string {
	direction := "too fast"
	if f.Worst.Error() > 0 {
		direction = "too slow"
	}
	return fmt.Sprintf("%.0f %% %s", 100*f.HeldOut.Worst, direction)
}
