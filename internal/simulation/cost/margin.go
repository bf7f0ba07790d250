package cost

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// A Margin bounds the prediction errors. It was computed from published measurements. The cost model was fitted to four
// of these measurements, and not to the others (see published/README.md).
type Margin struct {
	// The measured time of an iteration divided by its simulated time was at least Least and at most Most.
	Least float64 `json:"least"`
	Most  float64 `json:"most"`

	Points     int      `json:"points"`
	Publishers []string `json:"publishers"`

	First FirstToken `json:"-"`
	gpu   string     // "" if the margin is that of all GPUs, because this GPU has too few points
}

// FirstToken describes a part of the time to the first token, in ms: the part that the server spends outside
// iterations, for HTTP, for tokenization, and to send the token to the client. This part depends more on the server
// than on the GPU.
type FirstToken struct {
	Least      float64  `json:"least_ms"`
	Likely     float64  `json:"likely_ms"`
	Most       float64  `json:"most_ms"`
	Points     int      `json:"points"`
	Publishers []string `json:"publishers"`
}

// Margins is the format of published/margins.json, which the program scenario/testdata/margins writes.
type Margins struct {
	Elsewhere Margin            `json:"elsewhere"` // over all GPUs
	First     FirstToken        `json:"first_token"`
	GPUs      map[string]Margin `json:"gpus"`
}

//go:embed published/margins.json
var marginsFile []byte

var readMargins = sync.OnceValue(func() Margins { return *embedded(marginsFile, new(Margins)) })

// Margin returns the bounds of the prediction errors, or nil if the times are measured or the constants were
// chosen by hand.
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

// String describes the margin and its source in one line.
func (m *Margin) String() string {
	scope := "any GPU, because too little is published for this one"
	if m.gpu != "" {
		scope = m.gpu
	}
	return fmt.Sprintf("iterations took %.2f to %.2f times as long as simulated in servers that nothing was fitted "+
		"to (%d points of %s on %s); the time to the first token includes %.0f ms of the server's own work (%.0f to %.0f ms: %s)",
		m.Least, m.Most, m.Points, strings.Join(m.Publishers, ", "), scope, m.First.Likely, m.First.Least, m.First.Most,
		strings.Join(m.First.Publishers, ", "))
}

// FirstToken returns the time, in seconds, that the server spends outside iterations until a first token reaches the
// client.
func (m *Model) FirstToken() float64 { return m.first }

// Within returns a copy of m with all iteration times multiplied by factor, and with the given FirstToken in seconds.
func (m *Model) Within(factor, firstToken float64) *Model {
	c := *m
	c.factor, c.first = factor, firstToken
	return &c
}
