package plans

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"llmmemory/internal/simulation/capacity"
)

//go:embed sentences.tmpl
var sentencesFile string

var sentences = template.Must(template.New("").Funcs(template.FuncMap{
	"rate": rate, "seconds": seconds, "percent": percent,
	"part":      func(v float64) string { return fmt.Sprintf("%.2g", 100*v) },
	"gigabytes": func(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e9) },
}).Parse(sentencesFile))

func (r *Report) text(name string) string {
	var b strings.Builder
	if err := sentences.ExecuteTemplate(&b, name, facts{r}); err != nil {
		b.WriteString(err.Error())
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// facts has the values in the sentences about a report.
type facts struct{ *Report }

func (f facts) Holds() bool   { return f.Capacity.Rate > 0 }
func (f facts) Seeds() string { return f.Load.seeds() }
func (f facts) Several() bool { return len(f.Capacity.Seeds) > 1 }
func (f facts) Span() string  { return fmt.Sprintf("%.0f", f.atCapacity().Span) }

// Alone returns the values of the objectives at the lowest rate of the search. Requests do not overlap at this rate.
// It returns "" if some of them were not answered.
func (f facts) Alone() string {
	p := f.Capacity.Seeds[0].At()
	if p.Result == nil || p.Result.Answered != p.Result.Arrived {
		return ""
	}
	var all []string
	for i, o := range f.slo {
		all = append(all, o.Of()+" "+seconds(float64(p.Values[i])))
	}
	return strings.Join(all, ", ")
}

// TimesTrace returns the capacity divided by the rate of the trace, or 0 if there is no trace.
func (f facts) TimesTrace() float64 {
	if f.Load.Own == 0 {
		return 0
	}
	return f.Capacity.Rate / f.Load.Own
}

// Limiting returns the change that limits the capacity, or nil if there is none. Of the changes that gain more than the
// precision under every seed, it is the one with the largest gain; changes of the kinds Whole and Objective do not
// count. For example, if this is twice the memory, then the memory limits the capacity.
func (f facts) Limiting() *Change {
	if i := slices.IndexFunc(f.Limits, func(c Change) bool { return c.Name == f.Limit }); i >= 0 {
		return &f.Limits[i]
	}
	return nil
}

// NotMemory reports whether the limit is the time of iterations and more memory gains nothing.
func (f facts) NotMemory() bool {
	return f.Limiting().Kind == Time && f.change(KVMemory).GainLow <= f.Capacity.Precision
}

// MoreMemory returns the result of the trial with more memory. It returns nil if Limiting returns this change.
func (f facts) MoreMemory() *Change {
	if memory := f.change(KVMemory); memory.Name != f.Limit {
		return &memory
	}
	return nil
}

// Settings returns the changes of scheduler limits (--max-seqs, --max-tokens) that raise the capacity. It omits the
// change returned by Limiting.
func (f facts) Settings() (all []Change) {
	for _, c := range f.Limits {
		if (c.Kind == Sequences || c.Kind == Budget) && c.Name != f.Limit && c.Trouble == "" && c.GainLow > f.Capacity.Precision {
			all = append(all, c)
		}
	}
	return all
}

// A value is the value of one objective at the capacity, and its confidence interval, in s.
type value struct {
	Name             string
	Value, Low, High float64
	Margin           string // range that follows from the margin of the times, or ""
	Rough, Endless   bool
}

func (f facts) Values() (all []value) {
	p := f.atCapacity()
	for i, o := range f.slo {
		v := p.Intervals[i]
		x := value{Name: o.Of(), Value: float64(p.Values[i]), Low: float64(v.Low), High: float64(v.High), Rough: v.Rough,
			Endless: math.IsInf(float64(v.High), 1)}
		if f.Range != nil {
			x.Margin = f.Range.latency(x.Value, o.Metric == capacity.TTFT)
		}
		all = append(all, x)
	}
	return all
}

func (f facts) Rough() bool {
	return slices.ContainsFunc(f.atCapacity().Intervals, func(v capacity.Interval) bool { return v.Rough })
}

// Tries returns the number of rates that the search tried.
func (f facts) Tries() (n int) {
	for _, s := range f.Capacity.Seeds {
		n += len(s.Points)
	}
	return n
}

// AboveFailed returns the number of seeds under which some rate met the objective although a lower rate missed it.
func (f facts) AboveFailed() (n int) {
	for _, s := range f.Capacity.Seeds {
		if !s.Monotone {
			n++
		}
	}
	return n
}

// TimesMemory returns the highest number of blocks that was tried, divided by the server's number of blocks.
func (f facts) TimesMemory() int { return f.Target.MaxBlocks / max(1, f.Memory.Blocks) }

func (r *Report) change(kind Kind) Change {
	i := slices.IndexFunc(r.Limits, func(c Change) bool { return c.Kind == kind })
	return r.Limits[i]
}

func (r *Report) atCapacity() capacity.Point {
	i := slices.IndexFunc(r.Capacity.Confirmed, func(p capacity.Point) bool { return p.Result != nil })
	return r.Capacity.Confirmed[max(0, i)]
}

// percent formats a gain: "+38 %".
func percent(gain float64) string {
	return fmt.Sprintf("%+.0f %%", math.Round(100*gain)+0) // +0: no minus before a zero
}

func rate(v float64) string {
	if v <= 0 {
		return "0"
	}
	return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(v)))), 64)
}

func seconds(v float64) string {
	switch {
	case math.IsInf(v, 0):
		return "without end"
	case v < 1:
		return fmt.Sprintf("%.3g ms", 1000*v)
	}
	return fmt.Sprintf("%.3g s", v)
}

// seeds describes the seeds, for example "seeds 1-3". It returns "one trace" for a trace, which has no seeds.
func (l Load) seeds() string {
	switch n := len(l.Seeds); {
	case n == 1 && l.Own > 0:
		return "one trace"
	case n == 1:
		return fmt.Sprintf("seed %d", l.Seeds[0])
	default:
		return fmt.Sprintf("seeds %d-%d", l.Seeds[0], l.Seeds[n-1])
	}
}

// String describes the memory in one line.
func (m Memory) String() string {
	text := fmt.Sprintf("%.4g KiB a token, %d blocks of %d tokens, %d slots, %.1f GB; %d sequences of mean length fit",
		float64(m.TokenBytes)/1024, m.Blocks, m.BlockSize, m.Slots, float64(m.Bytes)/1e9, m.Fit)
	if m.Utilization > 0 {
		text += fmt.Sprintf("; %g of each GPU's memory may be used", m.Utilization)
	}
	return text
}
