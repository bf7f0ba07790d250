package compare

import (
	"slices"
	"strings"

	"llmmemory/internal/homework/course/handout"
)

// A mistake is a pattern for differences. It has the sentence of the handout that such a difference violates, and the
// words for the student. It matches a difference if each of these fields matches: call, seen, field, expected, actual
// and facts. An empty field matches everything.
type mistake struct {
	call                    string // the function
	seen                    Channel
	field, expected, actual string // parts of the texts of the difference
	facts                   []Fact // the difference must have all of them
	sentence                string // empty: the next mistake that matches decides; noSentence: there is none
	words                   string // empty: the next mistake that matches decides; for its {names} see Difference.says
}

func allOf(facts ...Fact) []Fact { return facts }

const noSentence = "none"

const writesMore = "{call} writes its record where it belongs, but also to {where}, which must not change"

// mistakes lists all kinds of mistakes. A difference takes its sentence from the first entry that matches it and has a
// sentence. It takes its words from the first entry that matches it and has words, which may be another entry.
var mistakes = []mistake{
	{field: Frees, actual: ThePool, sentence: handout.DestroyKeepsPool},
	{facts: allOf(noEngine), sentence: handout.NullEngine},
	{seen: Heap, field: Allocates, sentence: handout.NoMallocIfRefused, words: "{call} allocates {actual}{why}"},

	// Calls that must fail, whatever was seen after them.
	{call: "llm_init", facts: allOf(BadPool), sentence: handout.InitRefuses},
	{call: "create_sequence", facts: allOf(BadLength), sentence: handout.CreateRefuses},
	{call: "create_sequence", facts: allOf(ExistingID), sentence: handout.CreateRefuses},
	{call: "create_sequence", facts: allOf(BeyondCapacity), sentence: handout.CreateProbes},
	{call: "create_sequence", facts: allOf(NoFreeBlocks), sentence: handout.CreateProbes},
	{call: "free_sequence", facts: allOf(UnknownID), sentence: handout.FreeNotFound},
	{call: "fork_sequence", facts: allOf(UnknownID), sentence: handout.ForkIDs},
	{call: "fork_sequence", facts: allOf(ExistingID), sentence: handout.ForkIDs},
	{call: "append_kv", facts: allOf(UnknownID), sentence: handout.AppendFinds},
	{call: "append_kv", facts: allOf(BeyondCapacity), sentence: handout.AppendFull},
	{call: "append_kv", facts: allOf(NoFreeBlocks), sentence: handout.AppendProbes},
	{seen: Pool, facts: allOf(mustFail), words: "{call} writes to {where}{why}"},

	// Calls that do not come back.
	{call: "create_sequence", seen: hang, facts: allOf(NoSequences), sentence: handout.InitList},
	{seen: hang, sentence: noSentence, words: "{call} does not come back{known}{why}"},

	// Calls that end the process. Facts about the bad access, or about the state before the call, decide which sentence
	// of the handout they violate.
	{call: "create_sequence", seen: Death, facts: allOf(UnwrittenTable), sentence: handout.CreateL1},
	{call: "create_sequence", seen: Death, facts: allOf(NullTable), sentence: handout.CreateMaps},
	{call: "fork_sequence", seen: Death, facts: allOf(UnwrittenTable), sentence: handout.CreateL1},
	{call: "fork_sequence", seen: Death, facts: allOf(NullTable), sentence: handout.ForkCopies},
	{call: "free_sequence", seen: Death, facts: allOf(NullTable), sentence: handout.FreeAllSlots},
	{call: "append_kv", seen: Death, facts: allOf(UsesFreed), sentence: handout.AppendFinds}, // it frees nothing itself
	{call: "append_kv", seen: Death, facts: allOf(NullPointer), sentence: noSentence},
	{call: "append_kv", seen: Death, facts: allOf(NewTable), sentence: handout.AppendL2},
	{call: "llm_destroy", seen: Death, facts: allOf(NoSequences), sentence: handout.DestroyDummy},
	{call: "llm_destroy", seen: Death, sentence: handout.DestroyAll},
	{seen: Death, field: theProgram, sentence: noSentence, words: "The program does not start: {actual}"},
	{seen: Death, sentence: noSentence, words: "{call} does not return: {actual}{why}"},

	// Calls that must succeed.
	{call: "llm_init", seen: Returned, sentence: handout.InitRefuses},
	{call: "llm_init", seen: Engine, field: "free", sentence: handout.InitFree},
	{call: "llm_init", seen: Engine, field: "pool", sentence: handout.InitStoresPool},
	{call: "llm_init", seen: Engine, sentence: handout.InitTotal},
	{call: "llm_init", seen: Counts, sentence: handout.InitCounts},
	{call: "llm_init", seen: List, sentence: handout.InitList},
	{call: "llm_init", seen: Heap, field: Keeps, sentence: handout.InitCounts},

	{call: "create_sequence", seen: Returned, facts: allOf(Done), sentence: handout.CreateLinks},
	{call: "create_sequence", seen: Returned, field: "pointer", expected: "sequence", sentence: handout.CreateLinks},
	{call: "create_sequence", seen: Returned, facts: allOf(LastFree), sentence: handout.CreateProbes},
	{call: "create_sequence", seen: Returned, facts: allOf(FullLength), sentence: handout.CreateProbes},
	{call: "create_sequence", seen: Returned, facts: allOf(Long), sentence: handout.CreateProbes},
	{call: "create_sequence", seen: Returned, sentence: handout.CreateRefuses},
	{call: "create_sequence", seen: Sequence, field: "][", facts: allOf(Transposed), sentence: handout.Traversal},
	{call: "create_sequence", seen: Counts, facts: allOf(LastFree), sentence: handout.FirstFit},
	{call: "create_sequence", facts: allOf(TookFewer), sentence: handout.CreateCeiling},
	{call: "create_sequence", facts: allOf(TookMore), sentence: handout.CreateCeiling},
	{call: "create_sequence", facts: allOf(TookOthers), sentence: handout.FirstFit},
	{call: "create_sequence", seen: Heap, field: " block_table of ", sentence: handout.CreateL1},
	{call: "create_sequence", seen: Heap, field: " block_table[", sentence: handout.CreateL2},
	{call: "create_sequence", seen: Heap, field: "of 128 bytes", sentence: handout.CreateL1},
	{call: "create_sequence", seen: Heap, field: "of 64 bytes", sentence: handout.CreateL2},
	{call: "create_sequence", seen: Heap, field: Keeps, sentence: handout.CreateL2},
	{call: "create_sequence", seen: Sequence, field: "kv_count", sentence: handout.CreateLinks},
	{call: "create_sequence", seen: Sequence, field: "][", expected: "-1", sentence: handout.CreateL2},
	{call: "create_sequence", seen: Sequence, field: "][", sentence: handout.CreateMaps},
	{call: "create_sequence", seen: Sequence, field: "]", expected: "not NULL", sentence: handout.CreateL2},
	{call: "create_sequence", seen: Sequence, field: "]", expected: "bytes", sentence: handout.CreateL2},
	{call: "create_sequence", seen: Sequence, field: "]", expected: "NULL", facts: allOf(ExtraTable), sentence: handout.CreateL2},
	{call: "create_sequence", seen: Sequence, sentence: handout.CreateL1},
	{call: "create_sequence", seen: Counts, sentence: handout.CreateMaps},
	{call: "create_sequence", seen: Engine, sentence: handout.CreateMaps},
	{call: "create_sequence", seen: List, sentence: handout.CreateLinks},
	{call: "create_sequence", seen: Pool, sentence: handout.CreateNoWrites},

	{call: "free_sequence", seen: Returned, facts: allOf(Done), sentence: handout.FreeReturns},
	{call: "free_sequence", seen: Returned, sentence: handout.FreeDetaches},
	{call: "free_sequence", seen: List, sentence: handout.FreeDetaches},
	{call: "free_sequence", seen: Counts, facts: allOf(WholeTable), sentence: handout.FreeAllSlots},
	{call: "free_sequence", seen: Counts, sentence: handout.FreeReleases},
	{call: "free_sequence", seen: Engine, sentence: handout.FreeCounts},
	{call: "free_sequence", seen: Heap, field: "byte ", sentence: handout.FreeReleases},
	{call: "free_sequence", seen: Heap, facts: allOf(WholeTable), sentence: handout.FreeAllSlots},
	{call: "free_sequence", seen: Heap, sentence: handout.FreeTables},

	{call: "fork_sequence", seen: Returned, facts: allOf(Done), sentence: handout.ForkLinks},
	{call: "fork_sequence", seen: Returned, expected: "sequence", sentence: handout.ForkLinks},
	{call: "fork_sequence", seen: Returned, facts: allOf(NoneFree), sentence: handout.ForkSame},
	{call: "fork_sequence", seen: Returned, facts: allOf(Scattered), sentence: handout.ForkCopies},
	{call: "fork_sequence", seen: Returned, sentence: handout.ForkIDs},
	{call: "fork_sequence", facts: allOf(TookMore), sentence: handout.ForkSame},
	{call: "fork_sequence", seen: Heap, field: " block_table of ", sentence: handout.ForkL1},
	{call: "fork_sequence", seen: Heap, field: " block_table[", sentence: handout.ForkCopies},
	{call: "fork_sequence", seen: Heap, field: "of 128 bytes", sentence: handout.ForkL1},
	{call: "fork_sequence", seen: Heap, field: "of 64 bytes", sentence: handout.ForkCopies},
	{call: "fork_sequence", seen: Heap, field: "byte ", sentence: handout.ForkShares},
	{call: "fork_sequence", seen: Heap, field: Keeps, facts: allOf(SharedL1), sentence: handout.ForkL1},
	{call: "fork_sequence", seen: Heap, field: Keeps, sentence: handout.ForkCopies},
	{call: "fork_sequence", seen: Engine, sentence: handout.FreeCount},
	{call: "fork_sequence", seen: Counts, facts: allOf(OtherTable), sentence: handout.ForkCopies},
	{call: "fork_sequence", seen: Counts, sentence: handout.ForkShares},
	{call: "fork_sequence", seen: List, sentence: handout.ForkLinks},
	{call: "fork_sequence", seen: Sequence, field: "kv_count", sentence: handout.ForkLinks},
	{call: "fork_sequence", seen: Sequence, sentence: handout.ForkCopies},

	{call: "append_kv", seen: Returned, facts: allOf(Done), sentence: handout.AppendIncrements},
	{call: "append_kv", seen: Returned, facts: allOf(OwnBlock, NoneFree), sentence: handout.AppendExclusive},
	{call: "append_kv", seen: Returned, facts: allOf(LastFree), sentence: handout.AppendProbes},
	{call: "append_kv", seen: Returned, facts: allOf(NearLimit), sentence: handout.AppendFull},
	{call: "append_kv", seen: Returned, facts: allOf(NewTable), sentence: handout.AppendL2},
	{call: "append_kv", seen: Returned, facts: allOf(HardToFind), sentence: handout.AppendFinds},
	{call: "append_kv", seen: Returned, sentence: handout.AppendIncrements},
	{call: "append_kv", seen: Sequence, facts: allOf(Elsewhere), sentence: handout.AppendFinds},
	{call: "append_kv", seen: Counts, facts: allOf(OtherSlot), sentence: handout.AppendPosition},
	{call: "append_kv", seen: Sequence, facts: allOf(OtherSlot), sentence: handout.AppendPosition},
	{call: "append_kv", seen: Counts, facts: allOf(OwnBlock), sentence: handout.AppendExclusive},
	{call: "append_kv", seen: Engine, facts: allOf(OwnBlock), sentence: handout.AppendExclusive},
	{call: "append_kv", seen: Sequence, field: "][", facts: allOf(OwnBlock), sentence: handout.AppendExclusive},
	{call: "append_kv", facts: allOf(NewPage, TookFewer), sentence: handout.AppendUnmapped},
	{call: "append_kv", facts: allOf(SharedBlock, TookFewer), sentence: handout.AppendShared},
	{call: "append_kv", facts: allOf(TookOthers), sentence: handout.FirstFit},
	{call: "append_kv", seen: Counts, facts: allOf(LastFree), sentence: handout.FirstFit},
	{call: "append_kv", seen: Heap, field: " block_table[", sentence: handout.CreateL2},
	{call: "append_kv", seen: Heap, field: "of 64 bytes", sentence: handout.CreateL2},
	{call: "append_kv", seen: Heap, field: Keeps, sentence: handout.AppendL2},
	{call: "append_kv", seen: Sequence, field: "kv_count", sentence: handout.AppendIncrements},
	{call: "append_kv", seen: Sequence, field: "][", expected: "-1", facts: allOf(NewTable), sentence: handout.CreateL2},
	{call: "append_kv", seen: Sequence, field: "][", facts: allOf(LostEntry), sentence: handout.AppendL2},
	{call: "append_kv", seen: Sequence, field: "][", facts: allOf(SharedBlock), sentence: handout.AppendRecounts},
	{call: "append_kv", seen: Sequence, field: "][", sentence: handout.AppendMaps},
	{call: "append_kv", seen: Sequence, field: "]", sentence: handout.AppendL2},
	{call: "append_kv", seen: Counts, facts: allOf(SharedBlock), sentence: handout.AppendRecounts},
	{call: "append_kv", seen: Engine, facts: allOf(SharedBlock), sentence: handout.AppendRecounts},
	{call: "append_kv", seen: Counts, sentence: handout.AppendMaps},
	{call: "append_kv", seen: Engine, sentence: handout.AppendMaps},
	{call: "append_kv", seen: Pool, field: outsidePool, words: "{call} writes to {where}"},
	{call: "append_kv", seen: Pool, facts: allOf(SharedBlock, OldBlock), sentence: handout.NotDirectly, words: "{call} writes its record to a block that another sequence uses, too ({where})"},
	{call: "append_kv", seen: Pool, facts: allOf(SharedBlock, Stored, InCopy), sentence: handout.AppendCopies, words: "{call} copies the shared block wrongly: {where} is not that of the original"},
	{call: "append_kv", seen: Pool, facts: allOf(SharedBlock, Stored), sentence: handout.AppendCopies, words: writesMore},
	{call: "append_kv", seen: Pool, facts: allOf(NewPage, Stored), sentence: handout.NoMemset, words: writesMore},
	{call: "append_kv", seen: Pool, facts: allOf(Stored), sentence: handout.AppendStores, words: writesMore},
	{call: "append_kv", seen: Pool, sentence: handout.AppendStores, words: "{call} does not write its record to the right place: {where} is wrong"},

	{call: "llm_destroy", seen: Heap, field: Frees, facts: allOf(DummyHead), sentence: handout.DestroyDummy},
	{call: "llm_destroy", seen: Heap, facts: allOf(OfEngine), sentence: handout.DestroyEngine},
	{call: "llm_destroy", seen: Heap, sentence: handout.DestroyAll},
	{call: "llm_destroy", seen: Returned, sentence: handout.DestroyReturns},

	// All functions.
	{seen: Returned, facts: allOf(severalCalls), words: "{several}"},
	{seen: Returned, actual: "not NULL", words: "{call} returns {made}{why}"},
	{seen: Returned, actual: "NULL", words: "{call} returns NULL, but this call has to succeed and return {made}"},
	{seen: Returned, field: "the returned pointer", words: "{call} returns a pointer that is not the new sequence"},
	{seen: Returned, facts: allOf(mustFail), words: "{call} returns {actual}{why}"},
	{seen: Returned, facts: allOf(Done), words: "{call} does its work, but returns {actual} instead of {expected}"},
	{seen: Returned, words: "{call} returns {actual}, but this call has to succeed and return {expected}"},
	{seen: Pool, sentence: handout.WriteOnlyOnAppend, words: "{call} writes to {where}, but only append_kv may write to the pool"},
	{seen: Heap, field: Frees, sentence: noSentence, words: "{call} frees {actual}{why}"},
	{seen: Heap, field: Leaks, sentence: handout.NoLeaks, words: "{call} does not free {actual}"},
	{seen: Heap, field: "byte ", sentence: noSentence, words: "{call} writes outside an allocation: {field}"},
	{seen: Heap, field: Keeps, facts: allOf(SharedTable), sentence: handout.NoLeaks, words: "After {call}, {actual}, but has to be {expected}"},
	{seen: Heap, field: Keeps, sentence: handout.NoLeaks, words: "After {call} there {are} {actual}; there must be {expected}"},
	{seen: Heap, sentence: handout.NoLeaks, words: "{call} makes {actual} allocations, but a call needs {expected}"},
	{seen: Engine, sentence: handout.FreeCount},
	{seen: Allocations, words: "{call}: {field} is part of another allocation, but has to be one of its own"},
	{facts: allOf(mustFail), words: "{call} changes {field} from {expected} to {actual}{why}"},
	{words: "After {call}, {field} {is} {actual}, but has to be {expected}"},
}

func (m *mistake) matches(d *Difference) bool {
	return (m.call == "" || m.call == d.Op.Kind.Function()) && (m.seen == "" || m.seen == d.seen()) &&
		strings.Contains(d.Field, m.field) && strings.Contains(d.Expected, m.expected) && strings.Contains(d.Actual, m.actual) &&
		d.Has(m.facts...)
}

// Sentence returns the sentence of the handout that a difference breaks. It returns "" if an entry of mistakes says
// that the handout has no such sentence, and fallback if no entry says anything about the sentence.
func (d *Difference) Sentence(fallback string) string {
	for _, m := range mistakes {
		if m.sentence != "" && m.matches(d) {
			return strings.TrimPrefix(m.sentence, noSentence)
		}
	}
	return fallback
}

// Headline is the difference in one sentence, for a student.
func (d *Difference) Headline() string {
	if d.Step < 0 { // a remark of the grader
		return d.Actual
	}
	for _, m := range mistakes {
		if m.words != "" && m.matches(d) {
			return d.says(m.words)
		}
	}
	return "" // the last mistake matches all
}

// TellsRefusals reports whether a sentence says which calls must fail.
func TellsRefusals(sentence string) bool {
	for _, m := range mistakes {
		for _, r := range refusals {
			if m.sentence == sentence && slices.Contains(m.facts, r.fact) {
				return true
			}
		}
	}
	return false
}
