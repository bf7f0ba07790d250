package chart

import (
	"math"
	"strings"
)

// A Figure is a chart with its texts.
type Figure struct {
	Name   string // of its files: "fig13-batched-requests"
	Title  string
	Kind   Kind
	Panels []Panel // in rows of at most three

	// Fixed lists names of series and bars that have the same colour and marker in all figures with this list.
	Fixed []string

	Reference string // see Check.Reference

	Note  string // may be empty
	Seeds string // "seeds 1-8, 3,600 s"
}

// Kind says how a figure's numbers were obtained.
type Kind string

const (
	Predicted  Kind = "predicted"  // nothing was fitted to the compared values
	Calibrated Kind = "calibrated" // a constant was fitted to the compared values
	OrderOnly  Kind = "order only" // only which value is larger counts
	Explained  Kind = "explained"  // chosen after the comparison was known
	KnownMiss  Kind = "known miss" // outside the tolerance, with its cause
	Simulated  Kind = "simulated"  // not compared with anything
	Measured   Kind = "measured"   // on one machine, which the note names
)

var allKinds = []Kind{Predicted, Calibrated, OrderOnly, Explained, KnownMiss, Simulated, Measured}

var meanings = map[Kind]string{
	Predicted:  "nothing was fitted to the paper's values shown here",
	Calibrated: "constants were fitted to some of the paper's values shown here",
	OrderOnly:  "only the order of the values counts, not the values",
	Explained:  "found after the paper's values were compared, so it shows a cause and proves nothing",
	KnownMiss:  "farther from the paper than its tolerance, for a reason that is stated",
	Simulated:  "computed with a cost model, compared neither with the paper nor with a GPU",
	Measured:   "measured on the machine that the note names; the paper's values are of another one",
}

// Meaning returns an explanation for readers.
func (k Kind) Meaning() string { return meanings[k] }

// meaning returns an explanation for readers of a comparison with a reference. If reference is "", the values were
// compared with the paper, and meaning returns the text of Meaning. Otherwise they were not compared with the paper,
// and meaning replaces the words about the paper in this text.
func (k Kind) meaning(reference string) string {
	if reference == "" {
		return k.Meaning()
	}
	return strings.NewReplacer("the paper's values", "the values", "the paper than",
		"what it is compared with than").Replace(k.Meaning())
}

// A Panel is one plot with its axes.
type Panel struct {
	Title string // may be empty in a figure of one panel
	X     string // title of the axis with its unit: "request rate (requests/s)"
	Y     YAxis
	Data  Data // Lines, Bars or Stacks
}

// A YAxis begins at 0, or at the smallest value if that is negative. With Log, it begins at the power of ten
// below the smallest value.
type YAxis struct {
	Title string // with its unit
	Log   bool
	Max   float64 // larger values are cut; 0 means no limit
}

// Data is what a panel shows: Lines, Bars or Stacks.
type Data interface {
	// rows returns all numbers in the order in which they are drawn, for the CSV.
	rows() []row
	// series returns the names that the legend explains.
	series() []string
	draw(*frame)
}

// A Value is one of our numbers, with the paper's number for the same quantity.
type Value struct {
	Mean  float64
	SD    float64 // standard deviation over the seeds
	Seeds int     // how many: at least 1
	Paper *Range  // nil if the paper prints none
}

// Average returns the mean and the standard deviation of values. There is one value for each seed.
func Average(values []float64) Value {
	n := float64(len(values))
	if n == 0 {
		return Value{}
	}
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	for _, v := range values {
		squares += (v - sum/n) * (v - sum/n)
	}
	sd := 0.0
	if n > 1 {
		sd = math.Sqrt(squares / (n - 1))
	}
	if sd < 1e-12*math.Abs(sum/n) {
		sd = 0 // rounding
	}
	return Value{Mean: sum / n, SD: sd, Seeds: len(values)}
}

// A Range is a value that the paper states, or a range of such values.
type Range struct{ Low, High float64 }

// Printed returns a value that the paper states as one number.
func Printed(v float64) *Range { return &Range{v, v} }

// Between returns a range of the paper.
func Between(low, high float64) *Range { return &Range{low, high} }

// Lines are values over a numeric x.
type Lines []Line

// A Line is one series.
type Line struct {
	Name   string
	Points []Point // X increases
}

// A Point is a value at an x.
type Point struct {
	X float64
	Value
}

// Bars are groups of bars.
type Bars struct {
	Groups []string // along the x axis
	Series []Series // one bar in each group
}

// A Series is a named set of bars, one for each group: Values[i] is in Bars.Groups[i].
type Series struct {
	Name   string
	Values []Value
}

// Stacks are columns of parts, each beside the paper's.
type Stacks struct {
	Parts   []string // from the bottom
	Columns []Column
}

// A Column has a value for each part, not negative.
type Column struct {
	Name  string
	Parts []Value
}
