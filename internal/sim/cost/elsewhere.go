package cost

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// elsewhere is a release of an engine on GPUs on which nothing of it is published: the constants that
// the measured GPUs have in common. Each GPU's data sheet does the rest.
type elsewhere struct {
	GPUs map[string]Engine `json:"gpus"`
	// LeftOut is how far off all points of a GPU were when the constants were fitted without it.
	LeftOut map[string]Fit `json:"left_out"`
}

// on returns the release on a GPU on which nothing of it is published.
func (e elsewhere) on(name, gpu string) Fitted {
	of := Fitted{Name: name, GPU: gpu, Engine: e.GPUs[gpu]}
	for _, on := range slices.Sorted(maps.Keys(e.LeftOut)) {
		of.elsewhere = append(of.elsewhere, on)
		of.HeldOut.Worst = max(of.HeldOut.Worst, e.LeftOut[on].Worst)
		of.HeldOut.Median = max(of.HeldOut.Median, e.LeftOut[on].Median)
	}
	return of
}

// ElsewhereGPUs returns the GPUs on which nothing of a release is published, and for which it has
// the constants of other GPUs, sorted.
func ElsewhereGPUs(engine, release string) ([]string, error) {
	f, err := openEngine(engine)
	return slices.Sorted(maps.Keys(f.Elsewhere[release].GPUs)), err
}

// fromElsewhere describes what the constants are from.
func (f Fitted) fromElsewhere() string {
	return fmt.Sprintf("%s on %s: not fitted on this GPU; constants as measured on %s, with this GPU's "+
		"data sheet; each of those GPUs predicted from the others: median error up to %.0f %%, worst %.0f %%",
		f.Name, f.GPU, strings.Join(f.elsewhere, ", "), 100*f.HeldOut.Median, 100*f.HeldOut.Worst)
}
