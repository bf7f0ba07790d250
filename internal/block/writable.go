package block

// None is the table entry of a logical block that has no physical block.
const None int32 = -1

// A Need is what it takes before a record may be written through a table entry.
type Need uint8

const (
	Nothing Need = iota // exclusive: write in place
	Map                 // unmapped: needs a fresh block
	Copy                // shared: needs a fresh block and the old one's bytes
	Outside             // names no block of this pool: cannot be written
)

// NeedOf says what entry needs before a write (handout, task 4: "Does this
// append require a new physical block?"). It changes nothing.
func NeedOf(counts []int32, entry int32) Need {
	if uint(entry) < uint(len(counts)) { // an int32 below 0 becomes huge
		if Shared(counts[entry]) {
			return Copy
		}
		return Nothing
	}
	if entry == None {
		return Map
	}
	return Outside
}

// Shared reports whether a block that count table entries name must be copied
// before a write.
func Shared(count int32) bool { return count > 1 }

// Assign points slot, whose entry needs Map or Copy, at the free block fresh,
// and returns what it named before. The caller copies the bytes if that is a
// block. The old block keeps at least one reference, so it never becomes free
// here.
func Assign(counts []int32, slot *int32, fresh int32) (old int32) {
	old = *slot
	if old != None {
		counts[old]--
	}
	counts[fresh] = 1
	*slot = fresh
	return old
}

// Revoke undoes the Assign that returned old.
func Revoke(counts []int32, slot *int32, old int32) {
	counts[*slot] = 0
	if old != None {
		counts[old]++
	}
	*slot = old
}

// Release takes one reference from the block that entry names and reports
// whether that made it free. An entry that names no block is skipped.
func Release(counts []int32, entry int32) (freed bool) {
	if uint(entry) >= uint(len(counts)) {
		return false
	}
	counts[entry]--
	return counts[entry] == 0
}

// Share adds a reference to every block that entries name. If one of them is
// outside the pool it changes nothing and returns false.
func Share(counts []int32, entries []int32) bool {
	for i, entry := range entries {
		if uint(entry) < uint(len(counts)) {
			counts[entry]++
		} else if entry != None {
			Unshare(counts, entries[:i])
			return false
		}
	}
	return true
}

// Unshare undoes the Share of the same entries.
func Unshare(counts []int32, entries []int32) {
	for _, entry := range entries {
		if uint(entry) < uint(len(counts)) {
			counts[entry]--
		}
	}
}
