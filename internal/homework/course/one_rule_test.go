package course_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/source"
)

// A oneRule is a change of the engine's source that breaks one rule. The text old, which occurs once in the file,
// becomes new. The named test runs alone and must then fail.
type oneRule struct {
	name     string
	file     string
	old, new string
	test     string
}

const (
	shortUses = "TestEveryShortUseIsTheHandouts"
	boundary  = "TestEveryCallAtABoundaryIsTheHandouts"
	longList  = "TestEveryShortUseOfALongListIsTheHandouts"
	everyCopy = "TestCopyOnWriteEverywhereIsTheHandouts"
	linking   = "TestAnEntryIsMadeByTheCallThatLinks" // not exhaustive: the rule costs time, no state shows it
)

var oneRules = []oneRule{
	// The tests of the package once missed each of the following changes.
	{"a run that just fits is refused", "batch.go", "len(data) > maxRecords-position", "len(data) >= maxRecords-position", boundary},
	{"the last entry of an L2 table is not copied", "append.go", "old != block.None {", "old != block.None && logical%L2Size != L2Size-1 {", everyCopy},
	{"256 blocks are refused at creation", "sequence.go", "need > MaxLogicalBlocks", "need >= MaxLogicalBlocks", boundary},
	{"an entry is dropped and stays indexed", "cache.go", "\t\tc.index.remove(h)\n", "", linking},

	{"init: a pool of one block is refused", "engine.go", "blocks == 0", "blocks <= 1", shortUses},
	{"init: one block is not free", "engine.go", "e.Free = int32(blocks)", "e.Free = int32(blocks) - 1", shortUses},
	{"init: the counts are not cleared", "engine.go", ", Zero: 1}", "}", shortUses},
	{"create: length 0 is accepted", "sequence.go", "length <= 0", "length < 0", shortUses},
	{"create: a full last block takes one more", "sequence.go", "+ KVPerBlock - 1) / KVPerBlock // 64", "+ KVPerBlock) / KVPerBlock // 64", shortUses},
	{"create: a begun block is not counted", "sequence.go", "+ KVPerBlock - 1) / KVPerBlock // 64", ") / KVPerBlock // 64", shortUses},
	{"create: an id may live twice", "sequence.go", "last, ok := c.absent(e, id)\n\tif !ok {\n\t\treturn nil, ErrExists\n\t}\n\tneed", "last, _ := c.absent(e, id)\n\tneed", shortUses},
	{"create: the last free block is refused", "sequence.go", "need > int(e.Free)", "need >= int(e.Free)", shortUses},
	{"create: the blocks stay free", "sequence.go", "\te.Free -= int32(need)\n", "", shortUses},
	{"create: the sequence is empty", "sequence.go", "\ts.KVCount = length\n", "", shortUses},
	{"create: the last entry of L1 is not NULL", "sequence.go", "(chunks[1].At), L1Size))", "(chunks[1].At), L1Size-1))", boundary},
	{"create: the rest of an L2 table is 0", "sequence.go", "*l2 = unmapped", "*l2 = L2Table{}", shortUses},
	{"link: at the head", "sequence.go", "linkTail(&e.Active, &s.Node)", "linkTail(e.Active.Next, &s.Node)", shortUses},
	{"link: the list backward is forgotten", "sequence.go", "\thead.Prev = n\n", "", shortUses},
	{"fork: an id may live twice", "sequence.go", "last, ok := c.absent(e, id)\n\tif !ok {\n\t\treturn nil, ErrExists\n\t}\n\tif parent", "last, _ := c.absent(e, id)\n\tif parent", shortUses},
	{"fork: no reference is taken", "sequence.go", "!block.Share(counts, l2[:])", "len(counts) == 0", shortUses},
	{"fork: the tables are the parent's", "sequence.go", "s.BlockTable[i] = child", "s.BlockTable[i] = l2", shortUses},
	{"fork: the child is empty", "sequence.go", "\ts.KVCount = parent.KVCount\n", "", shortUses},
	{"fork: out of memory, the references stay", "sequence.go", "\t\tunshare(counts, parent.BlockTable[:])\n", "", shortUses},
	{"append: record 4096 is accepted", "append.go", "uint32(s.KVCount) >= maxRecords", "uint32(s.KVCount) > maxRecords", boundary},
	{"append: the count stays", "append.go", "\ts.KVCount++\n", "", shortUses},
	{"append: the record goes to the next place", "append.go", "[position%KVPerBlock] = data", "[(position+1)%KVPerBlock] = data", shortUses},
	{"append: a shared block is written", "../../block/writable.go", "return count > 1", "return count > 2", shortUses},
	{"append: an exclusive block is copied", "../../block/writable.go", "return count > 1", "return count > 0", shortUses},
	{"append: the copy is empty", "append.go", "*e.records(fresh) = *e.records(old)", "_ = old", shortUses},
	{"append: 15 of 16 records are copied", "append.go", "*e.records(fresh) = *e.records(old)", "copy(e.records(fresh)[:15], e.records(old)[:])", shortUses},
	{"append: the old block keeps the reference", "../../block/writable.go", "\t\tcounts[old]--\n", "", shortUses},
	{"append: the new block has no reference", "../../block/writable.go", "\tcounts[fresh] = 1\n", "", shortUses},
	{"append: the new block stays free", "append.go", "\te.Free--\n", "", shortUses},
	{"append: with one free block it is out of memory", "append.go", "e.Free == 0", "e.Free <= 1", shortUses},
	{"append: a second L2 table is begun anew", "append.go", "*home == nil", "logical%L2Size == 0 || *home == nil", everyCopy},
	{"free: the references stay", "../../block/writable.go", "\tcounts[entry]--\n\treturn counts[entry] == 0", "\treturn counts[entry] == 1", shortUses},
	{"free: the blocks are not free again", "sequence.go", "\t\te.Free += freed\n", "", shortUses},
	{"free: a shared block is free", "../../block/writable.go", "return counts[entry] == 0", "return counts[entry] <= 1", shortUses},
	{"free: the sequence stays in the list", "sequence.go", "\tunlink(&s.Node)\n", "", shortUses},
	{"free: a table is lost", "engine.go", "\t\t\t\tc.add(unsafe.Pointer(l2))\n", "\t\t\t\t_ = l2\n", shortUses},
	{"destroy: the counts are lost", "engine.go", "gone.add(unsafe.Pointer(e))\n", "gone.add(unsafe.Pointer(e))\n\tcounts = nil\n", shortUses},
	{"first fit: the second free block", "../../block/firstfit.go", "i := f.next\n", "i := f.next + 1\n", shortUses},
	{"batch: a refused one changes counts of records", "batch.go", "\t\ts.KVCount--\n", "", shortUses},
	{"batch: a refused one keeps its blocks", "journal.go", "\te.Free++\n", "", shortUses},
	{"batch: a shared block is not copied", "journal.go", "if st.old >= 0", "if st.old > 0", shortUses},
	{"run: the second block begins late", "batch.go", "\t\toffset = 0\n", "\t\toffset = 1\n", shortUses},
}

// Ensure that a test fails for each broken rule. make test-long breaks the first rule only. For the others it checks
// that the text to replace still exists.
func TestTheExhaustiveTestsCatchEveryBrokenRule(t *testing.T) {
	level.SkipNormal(t)
	for i, rule := range oneRules {
		t.Run(rule.name, func(t *testing.T) {
			list := source.Replace(t, rule.file, rule.old, rule.new)
			if i > 0 && !level.Exhaustive() {
				return
			}
			out, err := runReplaced(rule.test, list)
			require.Error(t, err, "it is not caught")
			require.Contains(t, out, "--- FAIL: "+rule.test, out)
		})
	}
}

// runReplaced runs a test with one source file replaced. list is the path of an overlay file for go test -overlay.
func runReplaced(test, list string) (out string, err error) {
	cmd := exec.Command("go", "test", "-buildvcs=false", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-run", "^"+test+"$", "-count=1", ".")
	cmd.Env = append(os.Environ(), "LLM_TEST_LONG=1") // for tests that make test leaves out
	text, err := cmd.CombinedOutput()
	return string(text), err
}
