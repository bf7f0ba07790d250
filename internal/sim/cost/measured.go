package cost

import "fmt"

// A Fit is how well a line fits what it was fitted to, as errors of measurements
// that were left out. Relative: 0.1 is 10 %.
type Fit struct {
	Points   int     `json:"points"`
	Measured int     `json:"measurements,omitempty"` // that the points are merged of; 0: one each
	Median   float64 `json:"median_error"`
	Worst    float64 `json:"worst_error"`
}

// leastPoints is how many measurements it takes for a fit to say anything about
// what was not measured.
const leastPoints = 8

// Enough is that errors of other points can be stated.
func (f Fit) Enough() bool { return f.Points >= leastPoints }

func (f Fit) String() string {
	if f.Points < leastPoints {
		return fmt.Sprintf("fitted to %d points, fewer than %d: without data for its errors", f.Points, leastPoints)
	}
	points := fmt.Sprintf("%d points", f.Points)
	if f.Measured > 0 {
		points += fmt.Sprintf(" merged of %d measurements", f.Measured)
	}
	return fmt.Sprintf("fitted to %s, errors of those left out: median %.0f %%, worst %.0f %%", points, 100*f.Median, 100*f.Worst)
}

// Measured is a cost file, as llmsim calibrate writes it: a line through times
// that were measured on one model and machine.
type Measured struct {
	Name   string  `json:"name"`
	Source string  `json:"source"`
	Linear Linear  `json:"linear_ms"`
	Spread *Spread `json:"spread,omitempty"`
	Fit    Fit     `json:"fit"`
}

// OpenMeasured reads a cost file. The error wraps ErrFile.
func OpenMeasured(path string) (Measured, error) {
	var m Measured
	if err := readFile(path, &m); err != nil {
		return Measured{}, fmt.Errorf("cost file %q: %w", path, err)
	}
	if err := m.Linear.check(); err != nil {
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

// Timed is the setup with the times of a cost file in place of its own.
func (s Setup) Timed(m Measured) Setup {
	line := m.Linear
	s.Linear, s.Measured = &line, &m
	return s
}
