package automaton_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/regex"
)

func work(units int) *meter.Meter {
	return meter.New(context.Background(), meter.Limits{Work: units, Bytes: 1 << 30})
}

func search(t require.TestingT, pattern string) *automaton.DFA {
	d, err := regex.Search(pattern, work(1_000_000))
	require.NoError(t, err)
	return d
}

// texts returns all texts that have at most length characters, each of them a or b.
func texts(length int) []string {
	all := []string{""}
	for i := 0; length > 0; length-- {
		for end := len(all); i < end; i++ {
			all = append(all, all[i]+"a", all[i]+"b")
		}
	}
	return all
}

var patterns = []string{"a", "^(aa)*$", "^(ab|b)+$", "^a{2,4}b?$", "b.a", "^(aaa|bb)$", "^$", "^(a(aa)*|bb(bb)*)$"}

// Ensure that a limited automaton accepts exactly the texts with a length in the range. It can reach an end from each
// state.
func TestLimitedTexts(t *testing.T) {
	all := texts(8)
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SampledFrom(patterns).Draw(t, "pattern")
		minimum, maximum := rapid.IntRange(0, 4).Draw(t, "minimum"), rapid.IntRange(-1, 4).Draw(t, "maximum")
		d := search(t, pattern)
		l, err := automaton.Limit(d, minimum, maximum, work(1000))
		require.NoError(t, err)
		wanted, begins := map[string]bool{}, map[string]bool{}
		for _, text := range all {
			if d.Match(text) != automaton.None && len(text) >= minimum && (maximum < 0 || len(text) <= maximum) {
				wanted[text] = true
				for i := range len(text) + 1 {
					begins[text[:i]] = true
				}
			}
		}
		require.Equal(t, len(wanted) == 0, l.Empty())
		for _, text := range texts(4) {
			if l.Empty() {
				break
			}
			state := int32(0)
			for _, r := range text {
				if state != automaton.None {
					state = l.Next(state, l.Class(r))
				}
			}
			require.Equal(t, begins[text], state != automaton.None, "%q of %s, %d to %d", text, pattern, minimum, maximum)
			if state != automaton.None {
				require.Equal(t, wanted[text], l.Tag(state) != automaton.None, "%q of %s, %d to %d", text, pattern, minimum, maximum)
			}
		}
	})
}

// Ensure that the same short texts can follow after a state and after the one that stands for it, and that one state
// stands for all that are far from the limits.
func TestAlikeStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SampledFrom(patterns).Draw(t, "pattern")
		minimum, maximum := rapid.IntRange(0, 12).Draw(t, "minimum"), rapid.IntRange(-1, 16).Draw(t, "maximum")
		longest := rapid.IntRange(1, 3).Draw(t, "longest")
		l, err := automaton.Limit(search(t, pattern), minimum, maximum, work(10_000))
		require.NoError(t, err)
		after := func(state int32, text string) (int32, bool) {
			for _, r := range text {
				if state = l.Next(state, l.Class(r)); state == automaton.None {
					return 0, false
				}
			}
			return l.Tag(state), true
		}
		known := map[int32]bool{}
		if !l.Empty() {
			known[0] = true
		}
		for states := slices.Collect(maps.Keys(known)); len(states) > 0; {
			state := states[0]
			states = states[1:]
			for _, text := range texts(longest) {
				tag, ok := after(state, text)
				alikeTag, alikeOK := after(l.Alike(state, longest), text)
				require.Equal(t, ok, alikeOK, "%s, %d to %d: %d, then %q", pattern, minimum, maximum, state, text)
				require.Equal(t, tag, alikeTag, "%s, %d to %d: %d, then %q", pattern, minimum, maximum, state, text)
			}
			for _, r := range "ab" {
				if next := l.Next(state, l.Class(r)); next != automaton.None && !known[next] {
					known[next] = true
					states = append(states, next)
				}
			}
		}
	})
	d := search(t, "^(a|bc)*$")
	l, err := automaton.Limit(d, 1000, 32767, work(10_000))
	require.NoError(t, err)
	alike := map[int32]bool{}
	for state := int32(0); state != automaton.None; state = l.Next(state, l.Class('a')) {
		alike[l.Alike(state, 10)] = true
	}
	require.Less(t, len(alike), 40)
}

// Ensure that the work of a limited automaton does not depend on the upper limit, and that limits which need too much are
// an error.
func TestLimitsAreCheap(t *testing.T) {
	d := search(t, "^data:(a|bc)*$")
	spent := func(minimum, maximum int) int {
		m := work(1_000_000)
		_, err := automaton.Limit(d, minimum, maximum, m)
		require.NoError(t, err)
		return m.Spent()
	}
	require.Equal(t, spent(0, 10), spent(0, 100_000_000))
	require.Equal(t, spent(3, 10), spent(3, 32767))
	require.Equal(t, spent(1000, -1), spent(1000, 32767))
	require.Equal(t, spent(1000, -1), spent(100_000_000, -1), "the same states can reach an end from all small numbers")
	for _, limits := range [][2]int{{0, 2_000_000_000}, {1_000_000, 1_000_000}} {
		_, err := automaton.Limit(search(t, "^(aa)*$"), limits[0], limits[1], work(1_000_000))
		require.ErrorIs(t, err, meter.ErrTooLarge)
	}
}

// Ensure that a combination of two automata accepts the right texts, and that the tag of a listed text is its first
// index.
func TestCombinations(t *testing.T) {
	budget := work(1_000_000)
	for _, first := range patterns {
		for _, second := range patterns {
			a, b := search(t, first), search(t, second)
			both, err := automaton.Intersect(a, b, budget)
			require.NoError(t, err)
			difference, err := automaton.Subtract(a, b, budget)
			require.NoError(t, err)
			union, err := automaton.Join(a, b, budget)
			require.NoError(t, err)
			for _, text := range texts(6) {
				inA, inB := a.Match(text) != automaton.None, b.Match(text) != automaton.None
				require.Equal(t, inA && inB, both.Match(text) != automaton.None, "%s and %s: %q", first, second, text)
				require.Equal(t, inA && !inB, difference.Match(text) != automaton.None, "%s without %s: %q", first, second, text)
				require.Equal(t, inA || inB, union.Match(text) != automaton.None, "%s or %s: %q", first, second, text)
			}
		}
	}
	nothing, err := automaton.Intersect(search(t, "^a$"), search(t, "^b$"), budget)
	require.NoError(t, err)
	require.True(t, nothing.Empty())
	require.Equal(t, int32(automaton.None), nothing.Match(""))
	listed, err := automaton.Texts([]string{"x", "é", "x"}, budget)
	require.NoError(t, err)
	require.Equal(t, int32(1), listed.Match("é"))
	require.Equal(t, int32(0), listed.Match("x"))
}

// Ensure that sets contain no surrogates. A set and its negation are disjoint, and together contain every other
// character.
func TestSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := automaton.NewSet(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) automaton.Range {
			lo := rapid.Int32Range(0, automaton.MaxRune).Draw(t, "lo")
			return automaton.Range{Lo: lo, Hi: rapid.Int32Range(lo, automaton.MaxRune).Draw(t, "hi")}
		}), 0, 5).Draw(t, "ranges")...)
		r := rapid.Int32Range(0, automaton.MaxRune).Draw(t, "rune")
		surrogate := r >= 0xD800 && r <= 0xDFFF
		contains := func(a automaton.Range) bool { return a.Lo <= r && r <= a.Hi }
		require.Equal(t, !surrogate, slices.ContainsFunc(s, contains) != slices.ContainsFunc(s.Negate(), contains))
		require.Equal(t, automaton.Any, automaton.NewSet(slices.Concat(s, s.Negate())...))
	})
}
