package cost

import "fmt"

// A Fit has the errors of fitted constants on measurements that were not used to fit them. Errors are
// relative: 0.1 is 10 %.
type Fit struct {
	Points   int     `json:"points"`
	Measured int     `json:"measurements,omitempty"` // measurements that were merged into the points; 0 if none were
	Median   float64 `json:"median_error"`
	Worst    float64 `json:"worst_error"`
	Range    *Range  `json:"range,omitempty"` // nil if not known
}

// A Range has the sizes of the measured iterations. The numbers of sequences, and the contexts (tokens of a
// sequence), are taken from iterations that decode; they are 0 if there was none.
type Range struct {
	LeastSeqs    float64 `json:"least_sequences"`
	MostSeqs     float64 `json:"most_sequences"`
	LeastContext float64 `json:"least_context"`
	MostContext  float64 `json:"most_context"`
	MostPrompt   float64 `json:"most_prompt_tokens"`
}

// String returns "" if r is nil.
func (r *Range) String() string {
	if r == nil {
		return ""
	}
	text := "measured without decodes"
	if r.MostSeqs > 0 {
		text = fmt.Sprintf("measured with %.0f to %.0f sequences of %.0f to %.0f tokens", r.LeastSeqs, r.MostSeqs,
			r.LeastContext, r.MostContext)
	}
	if r.MostPrompt > 0 {
		text += fmt.Sprintf(" and up to %.0f prompt tokens", r.MostPrompt)
	}
	for _, doubt := range r.doubts() {
		text += "; " + doubt
	}
	return text
}

// minVariation is the factor by which a quantity must vary in the measurements. If a quantity varies less, the fit
// cannot determine how much of the time is due to this quantity.
const minVariation = 2

// doubts lists the times that the measurements cannot determine, even if the errors of the fit are small.
func (r *Range) doubts() (all []string) {
	if r.MostSeqs < minVariation*r.LeastSeqs {
		all = append(all, "all batches have about the same size, so times of other sizes are a guess")
	}
	if r.MostContext < minVariation*r.LeastContext {
		all = append(all, "all sequences are about equally long, so times of other lengths are a guess")
	}
	if r.MostPrompt == 0 {
		all = append(all, "without prompts, so prompts take no time")
	}
	return all
}

// MinPoints is the smallest number of points for which the description of a Fit includes its errors.
const MinPoints = 8

func (f Fit) String() string {
	text := f.errors()
	if r := f.Range.String(); r != "" {
		text += "; " + r
	}
	return text
}

func (f Fit) errors() string {
	if f.Points < MinPoints {
		return fmt.Sprintf("fitted to %d points, fewer than %d: without data for its errors", f.Points, MinPoints)
	}
	points := fmt.Sprintf("%d points", f.Points)
	if f.Measured > 0 {
		points += fmt.Sprintf(" merged of %d measurements", f.Measured)
	}
	return fmt.Sprintf("fitted to %s, errors of those left out: median %.0f %%, worst %.0f %%", points, 100*f.Median,
		100*f.Worst)
}

// Measured is a cost file, which llmsim calibrate writes: a line fitted to times of one model on one machine.
type Measured struct {
	Name   string  `json:"name"`
	Source string  `json:"source"`
	LLM    string  `json:"model,omitempty"` // name of the model in the measurements; "" if not known
	Linear Linear  `json:"linear_ms"`
	Spread *Spread `json:"spread,omitempty"`
	Fit    Fit     `json:"fit"`
}

// String describes the measurements and the errors of the fit.
func (m *Measured) String() string {
	name := m.Name
	if m.LLM != "" {
		name += " of " + m.LLM
	}
	return name + ", " + m.Fit.String()
}

// OpenMeasured reads a cost file. The error wraps ErrFile.
func OpenMeasured(path string) (Measured, error) {
	var m Measured
	if err := readFile(path, &m); err != nil {
		return Measured{}, fmt.Errorf("cost file %q: %w", path, err)
	}
	if err := checkRanges(m.Linear); err != nil {
		return Measured{}, fmt.Errorf("cost file %q: %w: linear_ms: %w", path, ErrFile, err)
	}
	if err := m.Spread.check(); err != nil {
		return Measured{}, fmt.Errorf("cost file %q: %w: %w", path, ErrFile, err)
	}
	if m.Fit.Points < 0 || m.Fit.Measured < 0 || !(m.Fit.Median >= 0) || !(m.Fit.Worst >= 0) {
		return Measured{}, fmt.Errorf("cost file %q: %w: fit: want numbers of at least 0", path, ErrFile)
	}
	return m, nil
}

// Timed returns the setup with the times of a cost file.
func (s Setup) Timed(m Measured) Setup {
	line := m.Linear
	s.Linear, s.Measured = &line, &m
	return s
}
