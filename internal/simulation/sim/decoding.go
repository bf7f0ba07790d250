package sim

import (
	"fmt"
	"math"
	"strings"
)

// Decoding says how answers are generated.
type Decoding struct {
	// Samples is the number of answers to a prompt (parallel sampling), or with Beam the width of the beam. It is
	// at most 1,024; 0 means 1.
	Samples int `json:"samples"`

	// Beam makes the samples a beam. After each token, each sample is discarded with the probability Replace,
	// and replaced by a copy of a sample that was not discarded. The probability is a setting, because the
	// simulator has no model that scores the samples.
	Beam    bool    `json:"beam,omitempty"`
	Replace float64 `json:"replace,omitempty"`

	// Drafts is the number of draft tokens in each decode step of a sequence (speculative decoding), at most
	// 1,024. Accept is the probability that a draft token is right if all draft tokens before it are right.
	// See System.Drafts.
	Drafts    int     `json:"drafts,omitempty"`
	Accept    float64 `json:"accept,omitempty"`
	DraftTime float64 `json:"draftTime,omitempty"` // s; time to draft, added to an iteration
}

// String describes the settings for drafts, beams or samples, or returns "" if there are none.
func (d Decoding) String() string {
	switch {
	case d.Drafts > 0:
		text := fmt.Sprintf("%d draft tokens for each decode, each right with the assumed probability %g", d.Drafts, d.Accept)
		if d.DraftTime == 0 {
			return text + "; drafting takes no time: --draft-time adds what it takes"
		}
		return text + fmt.Sprintf("; drafting adds %.4g ms to an iteration", 1e3*d.DraftTime)
	case d.Beam && d.Samples > 1:
		return fmt.Sprintf("beams of width %d, each replaced at a token with the assumed probability %g", d.Samples,
			d.Replace)
	case d.Samples > 1:
		return fmt.Sprintf("%d to each prompt", d.Samples)
	}
	return ""
}

// DefaultReplace is the value of Decoding.Replace with which a beam of width 2 saves as much memory as the
// paper reports for Alpaca (Fig. 15b, 37.56 %). It was not fitted to other widths.
const DefaultReplace = 0.075

// maxSamples is the highest number of answers to a prompt, because ten bits of a token's id are the number of the
// answer. The number of draft tokens in a decode has the same limit.
const maxSamples = 1 << 10

// Check returns the error that Run would return for this decoding with the given system. The error wraps ErrConfig.
func (d Decoding) Check(system string) error {
	s, err := Lookup(system)
	if err != nil {
		return err
	}
	if d.Samples == 0 {
		d.Samples = 1
	}
	return d.check(s)
}

func (d *Decoding) check(s *System) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	probability := func(p float64) bool { return p >= 0 && p <= 1 }
	switch {
	case d.Samples < 1 || d.Samples > maxSamples:
		return bad("%d answers to a prompt: want 1 to %d", d.Samples, maxSamples)
	case d.Beam && !s.Beams:
		return bad("%s runs no beam search: take one of %s", s.Name,
			strings.Join(SystemsThat(func(s *System) bool { return s.Beams }), ", "))
	case !probability(d.Replace):
		return bad("a beam is replaced with the probability %v: want 0 to 1", d.Replace)
	case !probability(d.Accept):
		return bad("a draft is accepted with the probability %v: want 0 to 1", d.Accept)
	case d.Drafts < 0 || d.Drafts > maxSamples:
		return bad("%d drafts: want 0 to %d", d.Drafts, maxSamples)
	case !(d.DraftTime >= 0) || math.IsInf(d.DraftTime, 0):
		return bad("drafts take %v s: want a number of at least 0", d.DraftTime)
	case d.Drafts > 0 && !s.Drafts:
		return bad("%s verifies no drafts: take %s", s.Name,
			strings.Join(SystemsThat(func(s *System) bool { return s.Drafts }), ", "))
	}
	return nil
}
