package structured

import (
	"context"
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
	cache   map[stateKey]*stateTokens
	masks   int               // configs that hold a mask, as their Memo
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
	budget := meter.New(ctx, meter.Limits{Work: work, Bytes: compileBytes, Depth: compileDepth})
	g, err := form.grammar(v, budget)
	if err != nil {
		return nil, err
	}
	if !g.Trim() {
		return nil, form.noAnswer(budget)
	}
	return &Constraint{vocabulary: v, runner: grammar.NewRunner(g), cache: map[stateKey]*stateTokens{}, scratch: make([]uint64, v.Words())}, nil
}

// maxMaskBytes limits the memory of the masks that a constraint caches in the field Memo of configs. A mask takes 16 KB
// for a vocabulary of 128,000 tokens. Constraint.cache may have as many entries as there may be masks, but an entry can
// be larger than a mask.
const maxMaskBytes = 8 << 20

// maxMasks returns the largest number of masks that a constraint caches in Memo fields of configs. It is also the
// largest number of entries in Constraint.cache.
func (v *Vocabulary) maxMasks() int { return min(1024, max(1, maxMaskBytes/(8*v.Words()))) }

// mask returns the tokens that may follow a text with the state config. These are the tokens that one of config's items
// allows. If the text may end, the tokens that end an answer are included. The caller must hold the mutex.
func (c *Constraint) mask(config *grammar.Config) []uint64 {
	if mask, ok := config.Memo.([]uint64); ok {
		return mask
	}
	mask := make([]uint64, c.vocabulary.Words())
	for i, item := range config.Items {
		f := c.itemTokens(item)
		dst := mask
		// The item does not allow the tokens in f.excluded, but an earlier item may allow them. So the item's tokens
		// are first collected in a mask of their own, and the excluded tokens are removed from this mask only.
		separate := i > 0 && (f.excluded.mask != nil || f.excluded.list != nil)
		if separate {
			dst = c.scratch
			clear(dst)
		}
		f.inner.addTo(dst)
		for i := range f.spanning {
			x := &f.spanning[i]
			afterLexeme := c.runner.After(item, x.tag)
			c.addSpanning(&x.suffixes, 0, afterLexeme, dst)
			for _, node := range x.nodes {
				c.addSpanning(&c.vocabulary.trie, node, afterLexeme, dst)
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
	if c.masks++; c.masks > c.vocabulary.maxMasks() {
		c.masks = 1
		c.runner.Forget()
	}
	config.Memo = mask
	return mask
}

// addSpanning adds to mask the tokens that complete a lexeme and have more bytes after it, if the grammar allows these
// bytes. The lexeme ends at the given node of the trie, so the bytes below that node come after the lexeme. The
// parameter start is the config at the end of the lexeme.
func (c *Constraint) addSpanning(suffixes *trie, node int32, start *grammar.Config, mask []uint64) {
	if len(suffixes.nodes) == 0 {
		return
	}
	root := &suffixes.nodes[node]
	states := append(c.states[:0], start)
	for i := node + 1; i < root.end; {
		n := &suffixes.nodes[i]
		depth := n.depth - root.depth
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
}

// maxStateTokens is the number of stateTokens that a vocabulary caches for all constraints.
const maxStateTokens = 4096

// itemTokens returns the tokens that can follow in the state of an item's lexeme.
func (c *Constraint) itemTokens(item grammar.Item) *stateTokens {
	key := stateKey{item.Lexeme, item.State, item.Lexeme.FreeEnd()}
	if key.ignoredTag != lexeme.None && c.runner.After(item, key.ignoredTag).TextFollows() {
		key.ignoredTag = lexeme.None
	}
	if f, ok := c.cache[key]; ok {
		return f
	}
	if len(c.cache) >= c.vocabulary.maxMasks() {
		clear(c.cache)
	}
	f := c.newItemTokens(item, key.ignoredTag)
	if !f.large {
		c.cache[key] = f
	}
	return f
}

// newItemTokens computes the tokens that can follow in the state of an item's lexeme. A lexeme made by lexeme.Others
// accepts all names of members except the names in a list. For such a lexeme, newItemTokens begins with the tokens of
// the lexeme that accepts all names. All constraints of the vocabulary share these tokens, unless the tokens take too
// much memory to be cached. It then sets the field excluded to the tokens that complete a name of the list.
func (c *Constraint) newItemTokens(item grammar.Item, ignoredTag int32) *stateTokens {
	v := c.vocabulary
	if anyState, ok := item.Lexeme.AnyNameState(item.State); ok {
		if c.anyName == nil {
			if c.anyName = lexeme.AnyName(); item.Lexeme.IsCompact() {
				c.anyName.Compact()
			}
		}
		f := *c.sharedTokens(c.anyName, c.anyName.Find(anyState), ignoredTag)
		f.excluded = v.exceptions(item.Lexeme, item.State)
		return &f
	}
	return c.sharedTokens(item.Lexeme, item.State, ignoredTag)
}

// sharedTokens returns the tokens that can follow in a state of a lexeme. If the vocabulary's cache has them, because a
// constraint computed them before, sharedTokens takes them from there.
func (c *Constraint) sharedTokens(l *lexeme.Lexeme, state, ignoredTag int32) *stateTokens {
	v := c.vocabulary
	identity := l.Identity(state)
	if identity.Key == "" {
		return v.computeTokens(l, state, ignoredTag)
	}
	if ignoredTag != lexeme.None {
		identity.Key += " to the end"
	}
	v.mutex.Lock()
	f, ok := v.cache[identity]
	v.mutex.Unlock()
	if !ok {
		f = v.computeTokens(l, state, ignoredTag)
		v.mutex.Lock()
		if len(v.cache) >= maxStateTokens {
			clear(v.cache)
		}
		if !f.large {
			v.cache[identity] = f
		}
		v.mutex.Unlock()
	}
	return f
}
