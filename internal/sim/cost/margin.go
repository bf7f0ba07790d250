package cost

import (
	_ "embed"
	"fmt"
	"math"
	"strings"
	"sync"
)

// A Margin is how far off answers were for servers of publishers to whose points nothing was fitted
// (published/others.json).
type Margin struct {
	// times that iterations took, as a multiple of what is simulated: at least and at most
	Least float64 `json:"least"`
	Most  float64 `json:"most"`

	Points     int      `json:"points"`
	Publishers []string `json:"publishers"`

	First FirstToken `json:"-"`
	gpu   string     // "": of all GPUs, as nobody else published anything on this one
	newer string     // the release that the points are of, if it is a newer one
	of    string     // the engine whose servers these are, if it is another one
	kinds []string   // of models that nobody else published, by which the margin is wider
}

// A kind is a kind of models that no other publisher's points are of, and by how much times were off when its points
// were left out of the fit: how long they took as a multiple of what was predicted.
type kind struct {
	Name   string  `json:"name"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	Points int     `json:"points"`
}

// The names of kinds.
const (
	mixtures = "mixtures of experts"
	fewBits  = "weights in 8 bits or fewer"
)

func isKind(l LLM, name string) bool {
	if name == mixtures {
		return l.Experts > 0
	}
	return l.ParameterBytes < activationBytes
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

// margins are those of an engine.
type margins struct {
	Engine    string            `json:"engine"` // and its release
	First     FirstToken        `json:"first_token"`
	GPUs      map[string]Margin `json:"gpus"`
	Elsewhere Margin            `json:"elsewhere"` // over all GPUs
}

// newerRelease is what a newer release of an engine reached where the one that is simulated is old.
type newerRelease struct {
	Engine string `json:"engine"` // and its release
	Newer  string `json:"newer"`
	Margin Margin `json:"margin"`
}

var (
	//go:embed published/margins.json
	marginsFile []byte
	//go:embed published/newer.json
	newerFile []byte
	//go:embed published/kinds.json
	kindsFile []byte
)

// readJSON returns a function that reads what is embedded, once.
func readJSON[T any](file *[]byte) func() T {
	return sync.OnceValue(func() (v T) {
		embedded(*file, &v)
		return v
	})
}

var (
	readNewer   = readJSON[newerRelease](&newerFile)
	readMargins = readJSON[margins](&marginsFile)
	readKinds   = readJSON[[]kind](&kindsFile)
)

// Margin returns how far off the answers of a setup may be, nil if nothing is known: its times are measured, or chosen
// by hand. Of engines whose other servers nobody published it is that of vLLM V1's, over all GPUs, without a likely
// time to the first token. It is wider for kinds of models that nobody else published.
func (s Setup) Margin() *Margin {
	if s.Fitted == nil || s.Linear != nil {
		return nil
	}
	all := readMargins()
	m, ok := all.GPUs[s.Fitted.GPU]
	m.gpu, m.First = s.Fitted.GPU, all.First
	if !ok {
		m = all.Elsewhere
		m.First = all.First
	}
	if n := readNewer(); s.Fitted.Name == n.Engine {
		m = n.Margin
		m.newer = n.Newer
		m.First = FirstToken{Most: all.First.Most}
	} else if s.Fitted.Name != all.Engine {
		m = all.Elsewhere
		m.of = all.Engine
		m.First = FirstToken{Most: all.First.Most}
	}
	for _, k := range readKinds() {
		if isKind(s.LLM, k.Name) && (m.newer == "" || k.Name != fewBits) { // the newer release's points are in fp8
			m.Least, m.Most = math.Floor(100*m.Least*k.Least)/100, math.Ceil(100*m.Most*k.Most)/100
			m.kinds = append(m.kinds, k.Name)
		}
	}
	return &m
}

// String says what the margin rests on.
func (m *Margin) String() string {
	on := "any GPU, as nobody else published anything on this one"
	if m.gpu != "" {
		on = m.gpu
	}
	if m.of != "" {
		on = "all GPUs, of " + m.of + ", as there are none of this engine"
	}
	servers := fmt.Sprintf("%d points of %s on %s", m.Points, strings.Join(m.Publishers, ", "), on)
	if m.kinds != nil {
		servers += ", and wider, as there are none of " + strings.Join(m.kinds, " and of ")
	}
	if m.newer != "" {
		return fmt.Sprintf("iterations of release %s took %.2f to %.2f times as long as simulated (%d points of %s): this "+
			"release is old, and mostly too slow; the server's own work adds up to %.0f ms to the time to the first token, "+
			"which is not simulated", m.newer, m.Least, m.Most, m.Points, strings.Join(m.Publishers, ", "), m.First.Most)
	}
	text := fmt.Sprintf("iterations took %.2f to %.2f times as long as simulated in servers that nothing was fitted "+
		"to (%s)",
		m.Least, m.Most, servers)
	if m.First.Likely > 0 {
		return text + fmt.Sprintf("; the time to the first token includes %.0f ms of the server's own work (%.0f to %.0f ms: %s)",
			m.First.Likely, m.First.Least, m.First.Most, strings.Join(m.First.Publishers, ", "))
	}
	return text + fmt.Sprintf("; the server's own work adds up to %.0f ms to the time to the first token, which is not simulated",
		m.First.Most)
}

// FirstToken returns the seconds that a model adds to the time of each first token, and so of each whole answer.
func (m *Model) FirstToken() float64 { return m.first }

// Within returns the model with iterations that take a number of times as long, and other seconds for FirstToken.
func (m *Model) Within(times, first float64) *Model {
	c := *m
	for _, part := range []*float64{&c.base, &c.seq, &c.context, &c.prompt, &c.prompted, &c.launches, &c.reduce, &c.state,
		&c.weights, &c.token, &c.logits, &c.promptPair, &c.promptKV, &c.swapBlock, &c.swapEach, &c.copyBlock,
		&c.experts.all, &c.experts.token} {
		*part *= times
	}
	c.first = first
	return &c
}
