package calibrate

import (
	"errors"
	"math"
)

// ErrInput is wrapped by errors about measurements.
var ErrInput = errors.New("bad measurements")

// A Point is the measured time of some iterations. A line with the coefficients base, seq, context and prompt
// predicts base × Steps + seq × Seqs + context × Context + prompt × Prompt.
type Point struct {
	Label   string  // for output
	Model   string  // that was served; "" if not known
	Steps   float64 // iterations
	Seqs    float64 // sequences that generate a token, over all iterations
	Context float64 // tokens that these attend to, over all iterations
	Prompt  float64 // prompt tokens that are computed
	Seconds float64

	lines []Point // the measurements that were merged; nil for a single measurement
}

// run returns a Point for a benchmark that runs one batch of n sequences. The first iteration computes the prompts and
// generates the first token of each sequence. The other iterations decode.
func run(label string, n, prompt, output, seconds float64) Point {
	p := decodes(n, prompt+1, output-1)
	p.Label, p.Seconds = label, seconds
	p.Steps++
	p.Seqs += n
	p.Prompt = n * prompt
	return p
}

// decodes returns a Point, without a time, for consecutive iterations that decode n sequences. Each sequence attends to
// context tokens in the first iteration, and to one more token in each further iteration.
func decodes(n, context, steps float64) Point {
	return Point{Steps: steps, Seqs: n * steps, Context: n * steps * (context + (steps-1)/2)}
}

// weight returns the weight of a point in the fit. A point of more measurements has more weight, because its mean is
// more exact. But the weight grows less than in proportion, because the line is only an approximation, even of exact
// times.
func (p Point) weight() float64 { return math.Sqrt(float64(max(1, len(p.lines)))) }

func (p Point) measured() []Point {
	if p.lines == nil {
		return []Point{p}
	}
	return p.lines
}

func (p Point) terms() [4]float64 { return [4]float64{p.Steps, p.Seqs, p.Context, p.Prompt} }
