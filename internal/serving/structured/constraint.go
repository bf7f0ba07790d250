package structured

import (
	"context"
	"sync"

	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
)

// Constraint is a form compiled for a vocabulary. It is safe for concurrent use.
type Constraint struct {
	vocabulary *Vocabulary

	mutex   sync.Mutex // guards the runner, its lexemes and the rest
	runner  *grammar.Runner
	fits    map[fitKey]*fit
	masks   int               // configs that hold a mask, as their Memo
	states  []*grammar.Config // memory that calls of cross share
	scratch []uint64          // and a mask that calls of mask share
	others  *lexeme.Lexeme    // of all names of members; nil until it is needed
}

type fitKey struct {
	lexeme  *lexeme.Lexeme
	state   int32
	ignored int32 // the tag with which a free text may end if no text can follow it, or None
}

// Compile makes a form ready for use.
func Compile(v *Vocabulary, form Form) (*Constraint, error) {
	return CompileWithin(context.Background(), v, form, CompileWork)
}

// CompileWithin compiles a form for a vocabulary, with at most the given work in units of automaton.Budget.
// It returns an error if ctx ends before it has finished.
func CompileWithin(ctx context.Context, v *Vocabulary, form Form, work int) (*Constraint, error) {
	budget := automaton.NewBudgetUntil(ctx, work)
	g, err := form.grammar(v, budget)
	if err != nil {
		return nil, err
	}
	if !g.Trim() {
		return nil, form.noAnswer(budget)
	}
	return &Constraint{vocabulary: v, runner: grammar.NewRunner(g), fits: map[fitKey]*fit{}, scratch: make([]uint64, v.Words())}, nil
}

// maxMaskBytes limits the memory of the masks that a constraint caches. The limit applies to the masks of
// configs, and separately to the masks of fits. A mask takes 16 KB for a vocabulary of 128,000 tokens.
const maxMaskBytes = 8 << 20

// maxMasks is the largest number of masks of configs that a constraint caches, and the largest number of
// fits.
func (v *Vocabulary) maxMasks() int { return min(1024, max(1, maxMaskBytes/(8*v.Words()))) }

// mask returns the tokens that may follow a text with the state config. These are the tokens that fit the state of
// one of config's items. If the text may end, the tokens that end an answer are included. The caller must hold the
// mutex.
func (c *Constraint) mask(config *grammar.Config) []uint64 {
	if mask, ok := config.Memo.([]uint64); ok {
		return mask
	}
	mask := make([]uint64, c.vocabulary.Words())
	for i, item := range config.Items {
		f := c.fit(item)
		into := mask
		// The tokens in the field except are removed from this item's tokens only. An earlier item may
		// allow them, so the item's tokens are computed in a mask of their own.
		apart := i > 0 && (f.except.mask != nil || f.except.list != nil)
		if apart {
			into = c.scratch
			clear(into)
		}
		f.inside.addTo(into)
		for i := range f.crossings {
			at := &f.crossings[i]
			after := c.runner.After(item, at.tag)
			c.cross(&at.rest, 0, after, into)
			for _, node := range at.nodes {
				c.cross(&c.vocabulary.trie, node, after, into)
			}
		}
		f.except.removeFrom(into)
		if apart {
			tokenSet{mask: into}.addTo(mask)
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

// cross adds to mask those tokens that complete a lexeme and have more bytes, if the grammar allows these
// bytes after the lexeme. The lexeme ends at the given node of the trie rest, so the further bytes of these
// tokens are below the node. The parameter after is the config at the end of the lexeme.
func (c *Constraint) cross(rest *trie, node int32, after *grammar.Config, mask []uint64) {
	if len(rest.nodes) == 0 {
		return
	}
	from := &rest.nodes[node]
	states := append(c.states[:0], after)
	for i := node + 1; i < from.end; {
		n := &rest.nodes[i]
		depth := n.depth - from.depth
		to := c.runner.Step(states[depth-1], n.b)
		if to == nil {
			i = n.end
			continue
		}
		states = append(states[:depth], to)
		for _, t := range rest.here(n) {
			mask[t>>6] |= 1 << (t & 63)
		}
		i++
	}
	c.states = states
}

// maxFits is how many fits a vocabulary keeps for all constraints.
const maxFits = 4096

// fit returns the fit of the state of an item.
func (c *Constraint) fit(item grammar.Item) *fit {
	key := fitKey{item.Lexeme, item.State, item.Lexeme.FreeEnd()}
	if key.ignored != lexeme.None && c.runner.After(item, key.ignored).TextFollows() {
		key.ignored = lexeme.None
	}
	if f, ok := c.fits[key]; ok {
		return f
	}
	if len(c.fits) >= c.vocabulary.maxMasks() {
		clear(c.fits)
	}
	f := c.newFit(item, key.ignored)
	if !f.large {
		c.fits[key] = f
	}
	return f
}

// newFit computes the fit of an item. If the item's lexeme reads all names except some, newFit starts with the fit of
// all names. It puts the tokens that complete an excluded name into the field except. So constraints with different
// excluded names share one fit.
func (c *Constraint) newFit(item grammar.Item, ignored int32) *fit {
	v := c.vocabulary
	if same, ok := item.Lexeme.Except(item.State); ok {
		if c.others == nil {
			if c.others = lexeme.AnyName(); item.Lexeme.IsCompact() {
				c.others.Compact()
			}
		}
		f := *c.shared(c.others, c.others.Find(same), ignored)
		f.except = v.exceptions(item.Lexeme, item.State)
		return &f
	}
	return c.shared(item.Lexeme, item.State, ignored)
}

// shared returns the fit of a state of a lexeme. If another constraint has computed it, it is in the
// vocabulary's cache.
func (c *Constraint) shared(l *lexeme.Lexeme, state, ignored int32) *fit {
	v := c.vocabulary
	identity := l.Identity(state)
	if identity.Key == "" {
		return v.fit(l, state, ignored)
	}
	if ignored != lexeme.None {
		identity.Key += " to the end"
	}
	v.mutex.Lock()
	f, ok := v.fits[identity]
	v.mutex.Unlock()
	if !ok {
		f = v.fit(l, state, ignored)
		v.mutex.Lock()
		if len(v.fits) >= maxFits {
			clear(v.fits)
		}
		if !f.large {
			v.fits[identity] = f
		}
		v.mutex.Unlock()
	}
	return f
}
