package grade

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Tasks is the number of tasks of the handout.
const Tasks = 5

// Points are what can be earned. Staff may edit them.
type Points struct {
	Tasks [Tasks]float64 `json:"tasks"` // points of each task
	// The parts of a task's points, in percent. A task earns its Hidden points if all its directed tests pass and the
	// hidden traces show no mistake. Its Memory points depend on its directed tests: if only half of these pass, it can
	// earn only half of the Memory points.
	Directed float64 `json:"directed"`
	Hidden   float64 `json:"hidden"`
	Memory   float64 `json:"memory"`
}

// DefaultPoints are used unless staff give others.
var DefaultPoints = Points{Tasks: [Tasks]float64{20, 20, 20, 20, 20}, Directed: 70, Hidden: 15, Memory: 15}

// ErrPoints is wrapped by the errors of ParsePoints.
var ErrPoints = errors.New("not a points file")

// rest has the fields of Points other than Tasks. ParsePoints reads tasks as a slice, because a wrong file may have
// too few.
type rest Points

const maxPoints = 1_000_000 // of a task

// ParsePoints reads a points file: JSON, as llmgrade points prints it.
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
		if points < 0 || points > maxPoints {
			return p, fmt.Errorf("%w: task %d has %v points: 0 to %d are possible", ErrPoints, i+1, points, int(maxPoints))
		}
	}
	p.Tasks = [Tasks]float64(file.Tasks)
	if min(p.Directed, p.Hidden, p.Memory) < 0 || math.Abs(p.Directed+p.Hidden+p.Memory-100) > 1e-6 {
		return p, fmt.Errorf("%w: directed, hidden and memory are percentages and have to add up to 100, not %v",
			ErrPoints, p.Directed+p.Hidden+p.Memory)
	}
	return p, nil
}

// Max returns the points of all tasks together.
func (p *Points) Max() float64 {
	sum := 0.0
	for _, points := range p.Tasks {
		sum += points
	}
	return round(sum)
}

// award sets the points of each test, in whole hundredths, and the sums of the report. If only some of a task's
// directed tests pass, the task can earn only the same fraction of its memory points, because a memory test cannot
// check the calls that do not work.
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
	exact := 0.0 // the points of the tests so far, without rounding
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
	// Sums of hundredths in floating point are not exact, so the sums are rounded, too.
	r.Score, r.MaxScore = round(r.Score), round(r.MaxScore)
}

func round(points float64) float64 { return float64(int64(points*100+0.5)) / 100 }
