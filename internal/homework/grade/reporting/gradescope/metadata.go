package gradescope

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// metadata is the content of submission_metadata.json. The earlier submissions are sorted by time.
type metadata struct {
	Created  time.Time // zero if unknown
	Previous []previous
}

// A previous is an earlier submission.
type previous struct {
	Time    time.Time
	Score   float64
	Errored bool     // because of the grader
	Results *Results // of the latest only
}

// readMetadata reads submission_metadata.json. It returns the readable fields, and an error that describes the others.
func readMetadata(file string) (metadata, error) {
	var m metadata
	text, err := os.ReadFile(file)
	if err != nil {
		return m, fmt.Errorf("metadata: %w", err)
	}
	var raw struct {
		Created  time.Time         `json:"created_at"`
		Previous []json.RawMessage `json:"previous_submissions"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return m, fmt.Errorf("metadata: %w", err)
	}
	if raw.Created.IsZero() {
		return m, errors.New("metadata: no created_at")
	}
	m.Created = raw.Created
	var bad []error
	for i, text := range raw.Previous {
		p, err := parsePrevious(text)
		if err != nil {
			bad = append(bad, fmt.Errorf("metadata: previous_submissions[%d]: %w", i, err))
		}
		// A submission that is graded again ignores those after it.
		if p.Time.Before(m.Created) && !p.Time.IsZero() {
			m.Previous = append(m.Previous, p)
		}
	}
	slices.SortStableFunc(m.Previous, func(a, b previous) int { return a.Time.Compare(b.Time) })
	return m, errors.Join(bad...)
}

func parsePrevious(text []byte) (previous, error) {
	var raw struct {
		Time    time.Time       `json:"submission_time"`
		Score   json.Number     `json:"score"` // a number, a string with a number, or null
		Errored bool            `json:"autograder_error"`
		Results json.RawMessage `json:"results"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return previous{}, err
	}
	p := previous{Time: raw.Time, Errored: raw.Errored}
	p.Score, _ = raw.Score.Float64()
	if raw.Time.IsZero() {
		return p, errors.New("no submission_time")
	}
	if len(raw.Results) > 0 {
		if err := json.Unmarshal(raw.Results, &p.Results); err != nil {
			p.Results = nil
			return p, fmt.Errorf("results: %w", err)
		}
	}
	return p, nil
}

// uncounted returns the times of earlier submissions that do not count against the limit. The stored results of each
// earlier submission say whether it counts. They also have the times of still earlier submissions that do not count.
func (m *metadata) uncounted() []time.Time {
	var times []time.Time
	for _, p := range m.Previous {
		if p.Results == nil || p.Results.Extra == nil {
			continue
		}
		times = append(times, p.Results.Extra.Uncounted...)
		if !p.Results.Extra.Counts {
			times = append(times, p.Time)
		}
	}
	return times
}

func (m *metadata) last() *previous {
	for _, p := range slices.Backward(m.Previous) {
		if !p.Errored {
			return &p
		}
	}
	return nil
}
