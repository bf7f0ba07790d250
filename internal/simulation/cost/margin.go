package cost

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// A Margin is how far off answers were for servers of publishers to whose points nothing was fitted.
type Margin struct {
	// the time that iterations took, as a multiple of what is simulated: at least and at most
	Least float64 `json:"least"`
	Most  float64 `json:"most"`

	Points     int      `json:"points"`
	Publishers []string `json:"publishers"`

	First FirstToken `json:"-"`
	gpu   string     // "": of all GPUs, as nobody else published anything on this one
}

// FirstToken is the part of a first token's time that no iteration accounts for, in ms: HTTP, tokenizing, and the
// way of the token to the client. Servers differ by more than GPUs do.
type FirstToken struct {
	Least      float64  `json:"least_ms"`
	Likely     float64  `json:"likely_ms"`
	Most       float64  `json:"most_ms"`
	Points     int      `json:"points"`
	Publishers []string `json:"publishers"`
}

// margins is the format of published/margins.json, which the program scenario/testdata/margins writes.
type margins struct {
	First     FirstToken        `json:"first_token"`
	GPUs      map[string]Margin `json:"gpus"`
	Elsewhere Margin            `json:"elsewhere"` // over all GPUs
}

//go:embed published/margins.json
var marginsFile []byte

var readMargins = sync.OnceValue(func() (m margins) {
	embedded(marginsFile, &m)
	return m
})

// Margin returns how far off the answers of a setup may be, nil if nothing is known: its times are measured, or chosen
// by hand.
func (s Setup) Margin() *Margin {
	if s.Fitted == nil || s.Linear != nil {
		return nil
	}
	all := readMargins()
	m, ok := all.GPUs[s.Fitted.GPU]
	m.gpu = s.Fitted.GPU
	if !ok {
		m = all.Elsewhere
	}
	m.First = all.First
	return &m
}

// String says what the margin rests on.
func (m *Margin) String() string {
	on := "any GPU, as nobody else published anything on this one"
	if m.gpu != "" {
		on = m.gpu
	}
	return fmt.Sprintf("iterations took %.2f to %.2f times as long as simulated in servers that nothing was fitted "+
		"to (%d points of %s on %s); the time to the first token includes %.0f ms of the server's own work (%.0f to %.0f ms: %s)",
		m.Least, m.Most, m.Points, strings.Join(m.Publishers, ", "), on, m.First.Likely, m.First.Least, m.First.Most,
		strings.Join(m.First.Publishers, ", "))
}

// FirstToken returns the seconds that a model adds to the time of each first token, and so of each whole answer.
func (m *Model) FirstToken() float64 { return m.first }

// Within returns the model with iterations that take a number of times as long, and other seconds for FirstToken.
func (m *Model) Within(times, first float64) *Model {
	c := *m
	for _, part := range []*float64{&c.base, &c.seq, &c.context, &c.prompt, &c.launches, &c.reduce, &c.state,
		&c.weights, &c.token, &c.logits, &c.promptPair, &c.promptKV, &c.swapBlock, &c.swapEach, &c.copyBlock,
		&c.experts.all, &c.experts.token} {
		*part *= times
	}
	c.first = first
	return &c
}
