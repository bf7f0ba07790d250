package grammar

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/lexeme"
)

// Item is one way in which the grammar can read the text so far: it is inside a lexeme, in some state. The field edge
// has the edge that reads the lexeme, and the field frame has the call of the rule that contains this edge.
type Item struct {
	Lexeme *lexeme.Lexeme
	State  int32 // of the lexeme
	edge   int32 // that reads the lexeme
	frame  *frame
}

// Config is the state of a Runner after a text. It has an item for each way in which the grammar can read
// the text. It does not change, except for its caches.
type Config struct {
	Items  []Item
	Accept bool // whether the text may end here
	Memo   any  // what a caller stores with the config; the package does not use it

	key   string // of the items, as in Runner.configs
	epoch int    // of the runner when it made the config
	bytes []byte // the bytes after which the config is known: steps[i] is after bytes[i]
	steps []*step
	table *[256]*step // instead of bytes and steps if there are many
}

// Key returns a text that equal configs of a runner share, and no others.
func (c *Config) Key() string { return c.key }

// A step leads from a config to the next one.
type step struct {
	next   *Config // or dead, if the byte is not allowed
	closed *closed // whose items next has too, or nil
	turn   int     // Runner.turn when the step was charged the last time
}

var dead = &Config{}

func (c *Config) known(b byte) *step {
	if c.table != nil {
		return c.table[b]
	}
	for i, known := range c.bytes {
		if known == b {
			return c.steps[i]
		}
	}
	return nil
}

func (c *Config) remember(b byte, s *step) {
	i := bytes.IndexByte(c.bytes, b)
	switch {
	case c.table != nil:
		c.table[b] = s
	case i >= 0: // steps[i] leads to a config of an earlier epoch
		c.steps[i] = s
	case len(c.bytes) < 12:
		c.bytes, c.steps = append(c.bytes, b), append(c.steps, s)
	default:
		c.table = new([256]*step)
		for i, known := range c.bytes {
			c.table[known] = c.steps[i]
		}
		c.table[b] = s
		c.bytes, c.steps = nil, nil
	}
}

// maxConfigs is the number of configs up to which Runner.Shrink keeps the cache.
const maxConfigs = 20000

// MaxCacheBytes is what the configs, closures and frames in the cache may take before Runner.Shrink removes them, in
// bytes as the meter of Runner.Charge counts them.
const MaxCacheBytes = 32 << 20

// Runner runs a grammar. It is not safe for concurrent use.
//
// What a Runner charges does not depend on what it has cached. After each call of Charge, it charges each step and each
// closure once, from the cache or not. To this end, the id of a frame depends only on what the frame contains, so
// that a config has the same key whenever it is made.
type Runner struct {
	grammar  *Grammar
	configs  map[string]*Config // by their items
	closures map[string]*closed // by their kernels
	frames   map[string]*frame  // by rule and returns
	epoch    int                // how often Forget has run; it has forgotten the configs of earlier epochs
	root     *frame             // the call of the rule at node 0
	kernels  []kernel           // where close and intern begin
	key      []byte             // memory that calls share, as items and closing
	items    []Item
	closing  closing
	bytes    int          // about what the cache takes
	meter    *meter.Meter // charged
	turn     int          // the calls of Charge so far
}

// NewRunner returns a runner of a grammar. The grammar must be trimmed and must not be empty.
func NewRunner(g *Grammar) *Runner {
	r := &Runner{grammar: g, root: &frame{}}
	r.Forget()
	return r
}

// Forget removes all configs, closures and frames from the runner's cache, so that configs without another reference are
// freed.
func (r *Runner) Forget() {
	r.epoch++
	r.bytes = 0
	r.configs, r.closures, r.frames = map[string]*Config{}, map[string]*closed{}, map[string]*frame{}
}

// Shrink calls Forget if the cache has more than maxConfigs configs or takes more than MaxCacheBytes. A caller does this between calls of Charge.
func (r *Runner) Shrink() {
	if len(r.configs) > maxConfigs || r.bytes > MaxCacheBytes {
		r.Forget()
	}
}

// Charge makes the runner charge m from now on. After m has refused, Start and After return nil, and Step
// returns nil unless it has charged the step before.
func (r *Runner) Charge(m *meter.Meter) {
	r.meter = m
	r.turn++
}

// Start returns the config of the empty text, or nil after the meter has refused.
func (r *Runner) Start() *Config {
	r.kernels = append(r.kernels[:0], kernel{0, r.root})
	c, _ := r.intern(r.items[:0])
	return c
}

// Step returns the config after a byte, or nil if the byte is not allowed or the meter has refused.
func (r *Runner) Step(c *Config, b byte) *Config {
	s := c.known(b)
	if s == nil || s.next != dead && s.next.epoch != r.epoch {
		if s = r.step(c, b); s == nil {
			return nil
		}
		c.remember(b, s)
	} else if s.turn != r.turn && !r.recharge(c, s) {
		return nil
	}
	if s.next == dead {
		return nil
	}
	return s.next
}

// recharge charges for a known step what the method step charges for it, and reports whether the meter allows it.
func (r *Runner) recharge(c *Config, s *step) bool {
	if r.meter.Spend(1+len(c.Items)) != nil {
		return false
	}
	if s.closed != nil && (!r.chargeClosed(s.closed) || r.meter.Spend(len(s.closed.items)) != nil) {
		return false
	}
	if s.next != dead && r.meter.Keep(s.next.size()) != nil {
		return false
	}
	s.turn = r.turn
	return true
}

// Current returns c if it is in the runner's cache. Otherwise it returns an equal config in the cache, without the
// references of c to the configs after it. The garbage collector can then free c and these configs.
func (r *Runner) Current(c *Config) *Config {
	if c.epoch == r.epoch {
		return c
	}
	if known, ok := r.configs[c.key]; ok {
		return known
	}
	current := &Config{Items: c.Items, Accept: c.Accept, key: c.key, epoch: r.epoch}
	r.configs[c.key] = current
	r.bytes += current.size()
	return current
}

func (r *Runner) step(c *Config, b byte) *step {
	if r.meter.Spend(1+len(c.Items)) != nil {
		return nil
	}
	items := r.items[:0]
	r.kernels = r.kernels[:0]
	for _, item := range c.Items {
		next := item.Lexeme.Next(item.State, b)
		if next == lexeme.None {
			continue
		}
		if item.Lexeme.Open(next) {
			items = append(items, Item{item.Lexeme, next, item.edge, item.frame})
		}
		if tag := item.Lexeme.Tag(next); tag != lexeme.None {
			r.kernels = append(r.kernels, kernel{r.grammar.edges[item.edge].targets[tag], item.frame})
		}
	}
	r.items = items
	if len(items) == 0 && len(r.kernels) == 0 {
		return &step{dead, nil, r.turn}
	}
	next, closed := r.intern(items)
	if next == nil {
		return nil
	}
	return &step{next, closed, r.turn}
}

// After returns the config in which the lexeme of item has just been completed with the given tag. It returns nil after
// the meter has refused.
func (r *Runner) After(item Item, tag int32) *Config {
	r.kernels = append(r.kernels[:0], kernel{r.grammar.edges[item.edge].targets[tag], item.frame})
	c, _ := r.intern(r.items[:0])
	return c
}

// intern returns the config with these items: the given ones, and the items of the closure of r.kernels. If the
// runner's cache has an equal config, intern returns the cached config. It also returns the closure, or nil if there are
// no kernels. It returns nil after the meter has refused.
func (r *Runner) intern(items []Item) (*Config, *closed) {
	accept := false
	var c *closed
	if len(r.kernels) > 0 {
		c = r.close()
		if r.meter.Err() != nil || r.meter.Spend(len(c.items)) != nil {
			return nil, nil
		}
		items = append(items, c.items...)
		accept = c.accept
	}
	r.items = items
	if len(items) > 1 {
		slices.SortFunc(items, compareItems)
		items = slices.CompactFunc(items, func(a, b Item) bool { return compareItems(a, b) == 0 })
	}
	r.key = r.key[:0]
	for _, i := range items {
		r.key = binary.LittleEndian.AppendUint32(r.key, uint32(i.edge))
		r.key = binary.LittleEndian.AppendUint32(r.key, uint32(i.State))
		r.key = binary.LittleEndian.AppendUint64(r.key, i.frame.id)
	}
	if accept {
		r.key = append(r.key, 1)
	}
	next, ok := r.configs[string(r.key)]
	if !ok {
		next = &Config{Items: slices.Clone(items), Accept: accept, key: string(r.key), epoch: r.epoch}
	}
	if r.meter.Keep(next.size()) != nil {
		return nil, nil
	}
	if !ok {
		r.bytes += next.size()
		r.configs[next.key] = next
	}
	return next, c
}

// keep charges the meter for bytes that are cached, and reports whether it allows them.
func (r *Runner) keep(bytes int) bool {
	r.bytes += bytes
	return r.meter.Keep(bytes) == nil
}

// size returns about what a config takes.
func (c *Config) size() int { return configBytes + 2*itemBytes*len(c.Items) }

const configBytes = 200 // about what a config takes besides its items

func compareItems(a, b Item) int {
	return cmp.Or(cmp.Compare(a.edge, b.edge), cmp.Compare(a.State, b.State), cmp.Compare(a.frame.id, b.frame.id))
}

// TextFollows reports whether a byte of a text, not only a special token, may come next.
func (c *Config) TextFollows() bool {
	for _, item := range c.Items {
		for b := range lexeme.SpecialByte {
			if item.Lexeme.Next(item.State, byte(b)) != lexeme.None {
				return true
			}
		}
	}
	return false
}
