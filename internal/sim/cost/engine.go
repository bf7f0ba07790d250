package cost

import (
	"fmt"
	"slices"
	"strings"
)

// A Fitted is an engine on a GPU: constants that were fitted to one half of what is
// published of them, and the errors on the other half.
type Fitted struct {
	Name    string // of the engine
	GPU     string
	Engine  Engine
	HeldOut Fit // whose Points are those of both halves
}

// engineFile is the constants of an engine, by GPU, as the test of engines writes
// them.
type engineFile struct {
	Name   string            `json:"name"`
	Source string            `json:"source"`
	GPUs   map[string]Engine `json:"gpus"`
}

// Engines are the names of what is fitted to published measurements, sorted.
func Engines() []string { return names("engines") }

// OpenEngine is an engine on a GPU. The error wraps ErrUnknown if there is no such
// engine, or nothing is published of it on this GPU, or ErrFile.
func OpenEngine(name, gpu string) (Fitted, error) {
	if !slices.Contains(Engines(), name) {
		return Fitted{}, fmt.Errorf("engine %q: %w; known are %s", name, ErrUnknown, strings.Join(Engines(), ", "))
	}
	var f engineFile
	if err := read("engines", name, &f); err != nil {
		return Fitted{}, fmt.Errorf("engine %q: %w", name, err)
	}
	e, ok := f.GPUs[gpu]
	if !ok {
		var have []string
		for g := range f.GPUs {
			have = append(have, g)
		}
		slices.Sort(have)
		return Fitted{}, fmt.Errorf("engine %q: %w: nothing is published of it on %q, but on %s; measure, and take llmsim calibrate", name, ErrUnknown, gpu, strings.Join(have, ", "))
	}
	fitted, heldOut := Split(name, gpu)
	errors, err := Errors(heldOut, e)
	if err != nil {
		return Fitted{}, err
	}
	errors.Points = len(fitted) + len(heldOut)
	return Fitted{Name: name, GPU: gpu, Engine: e, HeldOut: errors}, nil
}

// On is the setup with the times of an engine.
func (s Setup) On(f Fitted) Setup {
	s.Engine, s.Fitted = f.Engine, &f
	return s
}

func (f Fitted) String() string {
	if f.HeldOut.Points < leastPoints {
		return fmt.Sprintf("%s on %s: %d published points, fewer than %d: without data for its errors", f.Name, f.GPU, f.HeldOut.Points, leastPoints)
	}
	return fmt.Sprintf("%s on %s: fitted to half of %d published points, errors of the other half: median %.0f %%, worst %.0f %%",
		f.Name, f.GPU, f.HeldOut.Points, 100*f.HeldOut.Median, 100*f.HeldOut.Worst)
}
