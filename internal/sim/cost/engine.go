package cost

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Fitted is a release of an engine on a GPU: constants that were fitted to one half of
// what is published of them, and the errors on the other half.
type Fitted struct {
	Name    string // of the engine, and its release
	GPU     string
	Engine  Engine
	HeldOut Fit // whose Points are those of both halves
	Worst   Published

	types     []string // of the weights of the points
	experts   bool     // some are of a mixture of experts
	smallKV   bool     // some have keys and values in 8 bits
	elsewhere []string // the GPUs that its constants are from, if nothing of it is published on GPU
}

// engineFile is the constants of an engine, by release and GPU, as the test of engines
// writes them.
type engineFile struct {
	Name     string                       `json:"name"`
	Source   string                       `json:"source"`
	Releases map[string]map[string]Engine `json:"releases"`

	Elsewhere map[string]elsewhere `json:"elsewhere,omitempty"` // by release
}

// Engines returns the names of what is fitted to published measurements, sorted.
func Engines() []string { return names("engines") }

// Releases returns the releases of an engine with published measurements on a GPU, or on any for
// "", from the oldest to the newest.
func Releases(engine, gpu string) ([]string, error) {
	f, err := openEngine(engine)
	if err != nil {
		return nil, err
	}
	return f.releases(func(release string) bool {
		_, ok := f.Releases[release][gpu]
		return ok || gpu == ""
	}), nil
}

// releases returns those that are wanted, from the oldest to the newest.
func (f engineFile) releases(wanted func(release string) bool) (all []string) {
	for release := range f.Releases {
		if wanted(release) {
			all = append(all, release)
		}
	}
	slices.SortFunc(all, compareReleases)
	return all
}

// EngineGPUs returns the GPUs on which measurements of a release are published, sorted.
func EngineGPUs(engine, release string) ([]string, error) {
	f, err := openEngine(engine)
	return slices.Sorted(maps.Keys(f.Releases[release])), err
}

// enginesOn returns the engines with a release of which enough is published on a GPU.
func enginesOn(gpu string) []string {
	var all []string
	for _, r := range releases() {
		if r.GPU == gpu && (Fit{Points: r.Published}).Enough() && !slices.Contains(all, r.Engine) {
			all = append(all, r.Engine)
		}
	}
	slices.Sort(all)
	return all
}

// compareReleases orders 0.9.1 before 0.10.0, and a range as its last one.
func compareReleases(a, b string) int {
	numbers := func(s string) (all []int) {
		for part := range strings.SplitSeq(s[strings.LastIndexByte(s, '-')+1:], ".") {
			n, err := strconv.Atoi(part)
			if err != nil {
				n = -1
			}
			all = append(all, n)
		}
		return all
	}
	return slices.Compare(numbers(a), numbers(b))
}

func openEngine(name string) (engineFile, error) {
	var f engineFile
	if name == "sglang" || strings.HasPrefix(name, "sglang-") {
		return f, fmt.Errorf("engine %q: %w: SGLang's scheduler and times are not simulated; vllm stands nearest: with the "+
			"same GPUs and loads GPUStack's servers of SGLang took 0.74 to 1.39 times as long (cost/published)", name, ErrUnknown)
	}
	if !slices.Contains(Engines(), name) {
		return f, fmt.Errorf("engine %q: %w; known are %s, and their releases, as in vllm-0.7.3", name, ErrUnknown,
			strings.Join(Engines(), ", "))
	}
	if err := read("engines", name, &f); err != nil {
		return f, fmt.Errorf("engine %q: %w", name, err)
	}
	return f, nil
}

// OpenEngine returns an engine on a GPU: a release of it, as in vllm-0.7.3, or without one the
// newest that has constants for this GPU, its own or those of other GPUs. The error wraps
// ErrUnknown if there is no such engine, or it has no constants for this GPU, or ErrFile.
func OpenEngine(name, gpu string) (Fitted, error) {
	engine, release := name, ""
	for _, e := range Engines() {
		if after, ok := strings.CutPrefix(name, e+"-"); ok {
			engine, release = e, after
		}
	}
	f, err := openEngine(engine)
	if err != nil {
		return Fitted{}, err
	}
	releases := f.releases(func(release string) bool {
		_, own := f.Releases[release][gpu]
		_, others := f.Elsewhere[release].GPUs[gpu]
		return own || others
	})
	switch {
	case len(releases) == 0:
		return Fitted{}, fmt.Errorf("engine %q: %w: nothing is published of it on %q, but on %s; measure, and take llmsim "+
			"calibrate", name, ErrUnknown, gpu, strings.Join(f.gpus(), ", "))
	case release != "" && !slices.Contains(releases, release):
		return Fitted{}, fmt.Errorf("engine %q: %w: known on %q are %s-%s; measure, and take llmsim calibrate", name,
			ErrUnknown, gpu, engine, strings.Join(releases, ", "+engine+"-"))
	}
	release = cmp.Or(release, releases[len(releases)-1])
	if _, ok := f.Releases[release][gpu]; ok {
		return f.published(release, gpu), nil
	}
	of := f.Elsewhere[release].on(engine+" "+release, gpu)
	for on := range f.Releases[release] {
		of.learn(releaseOn(engine, release, on))
	}
	return of, nil
}

// published returns a release on a GPU that something is published of.
func (f engineFile) published(release, gpu string) Fitted {
	r := releaseOn(f.Name, release, gpu)
	of := Fitted{Name: f.Name + " " + release, GPU: gpu, Engine: f.Releases[release][gpu]}
	of.HeldOut, of.Worst = errorsOf(r.HeldOut)
	of.HeldOut.Points = r.Points
	of.learn(r)
	return of
}

// learn adds what the points of a release are of.
func (f *Fitted) learn(r release) {
	f.types = append(f.types, r.Types...)
	f.experts = f.experts || r.Experts
	f.smallKV = f.smallKV || r.SmallKV
}

// gpus returns the GPUs of all releases, sorted.
func (f engineFile) gpus() []string {
	all := map[string]Engine{}
	for _, gpus := range f.Releases {
		maps.Copy(all, gpus)
	}
	return slices.Sorted(maps.Keys(all))
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
	if f.HeldOut.Points < leastPoints {
		return fmt.Sprintf("%s on %s: %d published points, fewer than %d: without data for its errors", f.Name, f.GPU,
			f.HeldOut.Points, leastPoints)
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

// largeError is how far off the worst point of a release on a GPU may be, relative.
const largeError = 0.35

// caution returns the warning for a setup that resembles a point with a large error, or "".
func (f Fitted) caution(s Setup) string {
	if f.HeldOut.Worst <= largeError || f.Worst.Model != s.LLM.Name || f.Worst.Workers != s.GPUs() {
		return ""
	}
	return fmt.Sprintf("CAUTION: the point that is %s is of this model on as many GPUs; with %d + %d tokens, expect "+
		"times to be as far off",
		f.worst(), f.Worst.Prompt, f.Worst.Output)
}

// elsewhere models a release of an engine on GPUs without published measurements. It uses the constants
// shared by the measured GPUs, and each GPU's data sheet for the rest.
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
