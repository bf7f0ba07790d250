package grade

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Tasks is how many tasks the handout has.
const Tasks = 5

// Points says what is worth how much; staff may edit it.
type Points struct {
	Tasks [Tasks]float64 `json:"tasks"` // of the handout
	// How each task's points are divided, in percent. Hidden is for a task in which
	// nothing is wrong. Memory is in proportion to the directed traces that pass.
	Directed float64 `json:"directed"`
	Hidden   float64 `json:"hidden"`
	Memory   float64 `json:"memory"`
}

// DefaultPoints are the points where nobody says otherwise.
var DefaultPoints = Points{Tasks: [Tasks]float64{20, 20, 20, 20, 20}, Directed: 70, Hidden: 15, Memory: 15}

// ErrPoints is wrapped by what is wrong with a points file.
var ErrPoints = errors.New("not a points file")

// rest is Points but for the tasks, of which there may be too few in a file.
type rest Points

// mostPoints of a task: beyond, hundredths are lost.
const mostPoints = 1_000_000

// ParsePoints reads a points file: JSON, as DefaultPoints prints.
func ParsePoints(text []byte) (Points, error) {
	var p Points
	var file struct {
		Tasks []float64 `json:"tasks"`
		*rest
	}
	file.rest = (*rest)(&p)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return p, fmt.Errorf("%w: %w", ErrPoints, err)
	}
	if d.More() {
		return p, fmt.Errorf("%w: there is something after its end", ErrPoints)
	}
	if len(file.Tasks) != Tasks || slices.Max(file.Tasks) <= 0 {
		return p, fmt.Errorf("%w: \"tasks\" has to list the points of the %d tasks", ErrPoints, Tasks)
	}
	for i, points := range file.Tasks {
		if points < 0 || points > mostPoints {
			return p, fmt.Errorf("%w: task %d has %v points: 0 to %d are possible", ErrPoints, i+1, points, int(mostPoints))
		}
	}
	p.Tasks = [Tasks]float64(file.Tasks)
	if min(p.Directed, p.Hidden, p.Memory) < 0 || math.Abs(p.Directed+p.Hidden+p.Memory-100) > 1e-6 {
		return p, fmt.Errorf("%w: directed, hidden and memory are percentages and have to add up to 100, not %v",
			ErrPoints, p.Directed+p.Hidden+p.Memory)
	}
	return p, nil
}

func (p *Points) max() float64 {
	sum := 0.0
	for _, points := range p.Tasks {
		sum += points
	}
	return sum
}

// award gives each test its points, which are whole hundredths, and the report
// their sum. A task's memory part gives as large a part of its points as the
// directed tests of the task that passed: what did not work was not watched.
func (p *Points) award(r *Report) {
	var asked, passed [Tasks + 1]float64
	for _, t := range r.Tests {
		if t.Part == PartDirected {
			asked[t.Task]++
			if t.Status == Passed {
				passed[t.Task]++
			}
		}
	}
	r.Score, r.MaxScore = 0, 0
	exact := 0.0 // what can be had in the tests so far, thirds and sevenths and all
	for i := range r.Tests {
		t := &r.Tests[i]
		points := p.Tasks[t.Task-1]
		before := round(exact)
		share := 1.0
		switch t.Part {
		case PartDirected:
			exact += points * p.Directed / 100 / asked[t.Task]
		case PartHidden:
			exact += points * p.Hidden / 100
		case PartMemory:
			exact += points * p.Memory / 100
			share = passed[t.Task] / asked[t.Task]
		}
		t.MaxScore, t.Score = round(round(exact)-before), 0
		if t.Status == Passed {
			t.Score = round(t.MaxScore * share)
		}
		r.Score += t.Score
		r.MaxScore += t.MaxScore
	}
	// Sums of hundredths are not whole by themselves either.
	r.Score, r.MaxScore = round(r.Score), round(r.MaxScore)
}

// round is to a hundredth of a point.
func round(points float64) float64 { return float64(int64(points*100+0.5)) / 100 }
