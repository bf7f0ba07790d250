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

	epoch int    // of the runner when it made the config
	bytes []byte // the bytes after which the config is known: that after bytes[i] is next[i]
	next  []*Config
	table *[256]*Config // instead of bytes and next if there are many
}

// dead is the config in Config.next and Config.table for a byte that is not allowed.
var dead = &Config{}

func (c *Config) known(b byte) *Config {
	if c.table != nil {
		return c.table[b]
	}
	for i, known := range c.bytes {
		if known == b {
			return c.next[i]
		}
	}
	return nil
}

func (c *Config) remember(b byte, next *Config) {
	i := bytes.IndexByte(c.bytes, b)
	switch {
	case c.table != nil:
		c.table[b] = next
	case i >= 0: // next[i] is of an earlier epoch
		c.next[i] = next
	case len(c.bytes) < 12:
		c.bytes, c.next = append(c.bytes, b), append(c.next, next)
	default:
		c.table = new([256]*Config)
		for i, known := range c.bytes {
			c.table[known] = c.next[i]
		}
		c.table[b] = next
		c.bytes, c.next = nil, nil
	}
}

// maxConfigs is the number of configs that a runner caches. When the cache has more, the runner forgets all
// of them.
const maxConfigs = 20000

// maxCacheBytes limits what the configs, closures and frames in the cache take, in bytes as Runner.Charge counts them.
const maxCacheBytes = 32 << 20

// Runner runs a grammar. It is not safe for concurrent use.
type Runner struct {
	grammar  *Grammar
	configs  map[string]*Config // by their items
	closures map[string]*closed // by their kernels
	frames   map[string]*frame  // by rule and returns
	count    int32              // frames so far; the id of the next one
	epoch    int                // how often Forget has run; it has forgotten the configs of earlier epochs
	root     *frame             // the call of the rule at node 0
	kernels  []kernel           // where close and intern begin
	key      []byte             // memory that calls share, as items and closing
	items    []Item
	closing  closing
	bytes    int          // about what the cache takes
	meter    *meter.Meter // charged for what is not cached
}

// NewRunner returns a runner of a grammar. The grammar must be trimmed and must not be empty.
func NewRunner(g *Grammar) *Runner {
	r := &Runner{grammar: g, root: &frame{}}
	r.Forget()
	return r
}

// Forget removes all configs from the runner's cache, so that configs without another reference are
// freed.
func (r *Runner) Forget() {
	r.epoch++
	r.bytes = 0
	r.configs, r.closures, r.frames = map[string]*Config{}, map[string]*closed{}, map[string]*frame{}
}

// Charge makes the runner charge m for the configs that it makes from now on. After m has refused, Step and After return
// nil, and nothing is cached.
func (r *Runner) Charge(m *meter.Meter) { r.meter = m }

// Start returns the config of the empty text, or nil after the meter has refused.
func (r *Runner) Start() *Config {
	r.kernels = append(r.kernels[:0], kernel{0, r.root})
	return r.intern(r.items[:0])
}

// Step returns the config after a byte, or nil if the byte is not allowed or the meter has refused.
func (r *Runner) Step(c *Config, b byte) *Config {
	next := c.known(b)
	if next == nil || next.epoch != r.epoch && next != dead {
		if next = r.step(c, b); next == nil {
			return nil
		}
		c.remember(b, next)
	}
	if next == dead {
		return nil
	}
	return next
}

// Current returns c if it is in the runner's cache. Otherwise it returns a copy of c without the references to the
// configs after c. The garbage collector can then free c and these configs.
func (r *Runner) Current(c *Config) *Config {
	if c.epoch == r.epoch {
		return c
	}
	return &Config{Items: c.Items, Accept: c.Accept, epoch: r.epoch}
}

func (r *Runner) step(c *Config, b byte) *Config {
	if len(r.configs) > maxConfigs || r.bytes > maxCacheBytes {
		r.Forget()
	}
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
		return dead
	}
	return r.intern(items)
}

// After returns the config in which the lexeme of item has just been completed with the given tag. It returns nil after
// the meter has refused.
func (r *Runner) After(item Item, tag int32) *Config {
	r.kernels = append(r.kernels[:0], kernel{r.grammar.edges[item.edge].targets[tag], item.frame})
	return r.intern(r.items[:0])
}

// intern returns the config with these items: the given ones, and the items of the closure of r.kernels. If the
// runner's cache has an equal config, intern returns the cached config.
func (r *Runner) intern(items []Item) *Config {
	accept := false
	if len(r.kernels) > 0 {
		c := r.close()
		if r.meter.Err() != nil || r.meter.Spend(len(c.items)) != nil {
			return nil
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
		r.key = binary.LittleEndian.AppendUint32(r.key, uint32(i.frame.id))
	}
	if accept {
		r.key = append(r.key, 1)
	}
	if c, ok := r.configs[string(r.key)]; ok {
		return c
	}
	if !r.keep(configBytes + 2*itemBytes*len(items)) {
		return nil
	}
	c := &Config{Items: slices.Clone(items), Accept: accept, epoch: r.epoch}
	r.configs[string(r.key)] = c
	return c
}

// keep charges the meter for bytes that are cached, and reports whether it allows them.
func (r *Runner) keep(bytes int) bool {
	r.bytes += bytes
	return r.meter.Keep(bytes) == nil
}

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
