package structured

import (
	"context"
	"fmt"
	"sync"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
)

// Constraint is a form compiled for a vocabulary. It is safe for concurrent use.
type Constraint struct {
	vocabulary *Vocabulary

	mutex   sync.Mutex // guards the runner, its lexemes and the rest
	runner  *grammar.Runner
	start   *grammar.Config // of the empty text
	meter   *meter.Meter    // of the call that holds the mutex
	cache   map[stateKey]*stateTokens
	masks   int               // configs that hold a stateMask, as their Memo
	states  []*grammar.Config // memory that calls of addSpanning share
	scratch []uint64          // and a mask that calls of mask share
	anyName *lexeme.Lexeme    // of all names of members; nil until it is needed
}

type stateKey struct {
	lexeme     *lexeme.Lexeme
	state      int32
	ignoredTag int32 // the tag with which a free text may end if no text can follow it, or None
}

// Compile makes a form ready for use.
func Compile(v *Vocabulary, form Form) (*Constraint, error) {
	return CompileWithin(context.Background(), v, form, CompileWork)
}

// CompileWithin compiles a form for a vocabulary, with at most the given work in units of meter.Meter.
// It returns an error if ctx ends before it has finished.
func CompileWithin(ctx context.Context, v *Vocabulary, form Form, work int) (*Constraint, error) {
	return compile(meter.New(ctx, meter.Limits{Work: work, Bytes: compileBytes, Depth: compileDepth}), v, form)
}

func compile(m *meter.Meter, v *Vocabulary, form Form) (*Constraint, error) {
	g, err := form.grammar(v, m)
	if err != nil {
		return nil, err
	}
	if err := m.Spend(g.Size()); err != nil {
		return nil, fmt.Errorf("a grammar of %d nodes and edges: %w", g.Size(), err)
	}
	if !g.Trim() {
		return nil, form.noAnswer(v.longest, m)
	}
	c := &Constraint{vocabulary: v, runner: grammar.NewRunner(g), cache: map[stateKey]*stateTokens{}, scratch: make([]uint64, v.Words())}
	c.charge(m)
	if c.start = c.runner.Start(); c.start == nil {
		return nil, fmt.Errorf("the beginning of the answer: %w", m.Err())
	}
	return c, nil
}

// charge makes the methods of c charge a meter from now on. The caller must hold the mutex.
func (c *Constraint) charge(m *meter.Meter) {
	c.meter = m
	c.runner.Charge(m)
}

// maxMaskBytes limits the memory of the masks that a constraint caches in the field Memo of configs. A mask takes 16 KB
// for a vocabulary of 128,000 tokens. Constraint.cache may have as many entries as there may be masks, but an entry can
// be larger than a mask.
const maxMaskBytes = 8 << 20

// maxMasks returns the largest number of masks that a constraint caches in Memo fields of configs. It is also the
// largest number of entries in Constraint.cache.
func (v *Vocabulary) maxMasks() int { return min(1024, max(1, maxMaskBytes/(8*v.Words()))) }

// A stateMask is the mask of a config, and what it is charged.
type stateMask struct {
	mask   []uint64
	work   int // units besides those of the lexemes
	bytes  int
	states []stateWork // of the lexemes
}

// stateWork is what the tokens in a state of a lexeme are charged.
type stateWork struct {
	key   stateKey
	units int
	large bool // as in stateTokens
}

// mask returns the tokens that may follow a text with the state config. These are the tokens that one of config's items
// allows. If the text may end, the tokens that end an answer are included. The error is the meter's, which is charged
// only if the mask is not cached. The caller must hold the mutex, and must have charged nothing since it called charge.
func (c *Constraint) mask(config *grammar.Config) (*stateMask, error) {
	if cached, ok := config.Memo.(*stateMask); ok {
		return cached, nil
	}
	if c.masks >= c.vocabulary.maxMasks() {
		c.masks = 0
		c.runner.Forget() // before anything is charged: see grammar.Runner
		config = c.runner.Current(config)
	}
	work, bytes := c.meter.Spent(), c.meter.Kept()
	mask := make([]uint64, c.vocabulary.Words())
	out := &stateMask{mask: mask}
	for i, item := range config.Items {
		key, f, err := c.itemTokens(item)
		if err != nil {
			return nil, err
		}
		out.states = append(out.states, stateWork{key, f.work, f.large})
		work += f.work
		dst := mask
		// The item does not allow the tokens in f.excluded, but an earlier item may allow them. So the item's tokens
		// are first collected in a mask of their own, and the excluded tokens are removed from this mask only.
		separate := i > 0 && (f.excluded.mask != nil || f.excluded.list != nil)
		if separate {
			dst = c.scratch
			clear(dst)
		}
		if err := c.meter.Spend(1 + c.vocabulary.Words()/32); err != nil {
			return nil, err
		}
		f.inner.addTo(dst)
		for i := range f.spanning {
			x := &f.spanning[i]
			afterLexeme := c.runner.After(item, x.tag)
			if afterLexeme == nil {
				return nil, c.meter.Err()
			}
			if err := c.addSpanning(&x.suffixes, 0, afterLexeme, dst); err != nil {
				return nil, err
			}
			for _, node := range x.nodes {
				if err := c.addSpanning(&c.vocabulary.trie, node, afterLexeme, dst); err != nil {
					return nil, err
				}
			}
		}
		f.excluded.removeFrom(dst)
		if separate {
			tokenSet{mask: dst}.addTo(mask)
		}
	}
	if config.Accept {
		for _, t := range c.vocabulary.stop {
			mask[t>>6] |= 1 << (t & 63)
		}
	}
	c.masks++
	out.work, out.bytes = c.meter.Spent()-work, c.meter.Kept()-bytes
	config.Memo = out
	return out, nil
}

// addSpanning adds to mask the tokens that complete a lexeme and have more bytes after it, if the grammar allows these
// bytes. The lexeme ends at the given node of the trie, so the bytes below that node come after the lexeme. The
// parameter start is the config at the end of the lexeme.
func (c *Constraint) addSpanning(suffixes *trie, node int32, start *grammar.Config, mask []uint64) error {
	if len(suffixes.nodes) == 0 {
		return nil
	}
	root := &suffixes.nodes[node]
	states := append(c.states[:0], start)
	for i := node + 1; i < root.end; {
		n := &suffixes.nodes[i]
		depth := n.depth - root.depth
		if err := c.meter.Spend(1); err != nil {
			return err
		}
		next := c.runner.Step(states[depth-1], n.b)
		if next == nil {
			i = n.end
			continue
		}
		states = append(states[:depth], next)
		for _, t := range suffixes.tokensAt(n) {
			mask[t>>6] |= 1 << (t & 63)
		}
		i++
	}
	c.states = states
	return c.meter.Err()
}

// maxStateTokens is the number of stateTokens that a vocabulary caches for all constraints.
const maxStateTokens = 4096

// itemTokens returns the tokens that can follow in the state of an item's lexeme, with their key in Constraint.cache. It
// charges their work even if they are cached.
func (c *Constraint) itemTokens(item grammar.Item) (stateKey, *stateTokens, error) {
	item.State = item.Lexeme.Alike(item.State)
	key := stateKey{item.Lexeme, item.State, item.Lexeme.FreeEnd()}
	if key.ignoredTag != lexeme.None {
		after := c.runner.After(item, key.ignoredTag)
		if after == nil {
			return key, nil, c.meter.Err()
		}
		if after.TextFollows() {
			key.ignoredTag = lexeme.None
		}
	}
	if f, ok := c.cache[key]; ok {
		return key, f, c.meter.Spend(f.work)
	}
	if len(c.cache) >= c.vocabulary.maxMasks() {
		clear(c.cache)
	}
	f, err := c.newItemTokens(item, key.ignoredTag)
	if err == nil && !f.large {
		c.cache[key] = f
	}
	return key, f, err
}

// newItemTokens computes the tokens that can follow in the state of an item's lexeme. A lexeme made by lexeme.Others
// accepts all names of members except the names in a list. For such a lexeme, newItemTokens begins with the tokens of
// the lexeme that accepts all names. All constraints of the vocabulary share these tokens, unless the tokens take too
// much memory to be cached. It then sets the field excluded to the tokens that complete a name of the list.
func (c *Constraint) newItemTokens(item grammar.Item, ignoredTag int32) (*stateTokens, error) {
	v := c.vocabulary
	if anyState, ok := item.Lexeme.AnyNameState(item.State); ok {
		if c.anyName == nil {
			if c.anyName = lexeme.AnyName(); item.Lexeme.IsCompact() {
				c.anyName.Compact()
			}
		}
		shared, err := c.sharedTokens(c.anyName, c.anyName.Find(anyState), ignoredTag)
		if err != nil {
			return nil, err
		}
		f := *shared
		before := c.meter.Spent()
		f.excluded, err = v.exceptions(item.Lexeme, item.State, c.meter)
		f.work += c.meter.Spent() - before
		return &f, err
	}
	return c.sharedTokens(item.Lexeme, item.State, ignoredTag)
}

// sharedTokens returns the tokens that can follow in a state of a lexeme. If the vocabulary's cache has them, because a
// constraint computed them before, sharedTokens takes them from there, and charges their work.
func (c *Constraint) sharedTokens(l *lexeme.Lexeme, state, ignoredTag int32) (*stateTokens, error) {
	v := c.vocabulary
	identity := l.Identity(state)
	if identity.Key == "" {
		return v.computeTokens(l, state, ignoredTag, c.meter)
	}
	if ignoredTag != lexeme.None {
		identity.Key += " to the end"
	}
	v.mutex.Lock()
	f, ok := v.cache[identity]
	v.mutex.Unlock()
	if ok {
		return f, c.meter.Spend(f.work)
	}
	f, err := v.computeTokens(l, state, ignoredTag, c.meter)
	if err != nil || f.large {
		return f, err
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if len(v.cache) >= maxStateTokens {
		clear(v.cache)
	}
	v.cache[identity] = f
	return f, nil
}
