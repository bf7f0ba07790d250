package block

// None is the table entry of a logical block that has no physical block.
const None int32 = -1

// A Need says what must happen to a table entry before the key and value of a token can be written to its block.
type Need uint8

const (
	Nothing Need = iota // exclusive: write in place
	Map                 // unmapped: needs a fresh block
	Copy                // shared: needs a fresh block and the old one's bytes
	Outside             // names no block of this pool: cannot be written
)

// NeedOf returns what the entry needs before a write (handout, task 4: "Does this append require a new physical
// block?"). It changes nothing.
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

// Shared reports whether a block with this count must be copied before a write.
func Shared(count int32) bool { return count > 1 }

// Assign sets the table entry *slot to the free block fresh. NeedOf must have returned Map or Copy for the entry.
// Assign returns the old entry. If the old entry is a block, the caller must copy the block's bytes; the old block
// keeps at least one reference, so it does not become free.
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

// Release drops one reference to the block that entry names. It reports whether the block became free. It ignores
// an entry that names no block.
func Release(counts []int32, entry int32) (freed bool) {
	if uint(entry) >= uint(len(counts)) {
		return false
	}
	counts[entry]--
	return counts[entry] == 0
}

// Share adds a reference to every block that entries name. If an entry is outside
// the pool, Share changes nothing and returns false.
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
