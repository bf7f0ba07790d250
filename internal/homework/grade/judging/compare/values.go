package compare

import (
	"fmt"
	"strconv"
)

// Words for the values with which grader/process/runner.c fills memory.
const (
	Unwritten = "never written" // malloc returned it
	Freed     = "freed memory"

	unwrittenByte = 0xa5
	freedByte     = 0xdd
)

// Value returns a text for a student about a number that the submission's memory contains. Usually the text is the
// number in decimal. If the number consists of bytes with which the runner fills new or freed memory, or is at most
// 4096 more or less, the text says that the memory was never written or was freed.
func Value(n int32) string {
	switch b, exact := fillOf(uint32(n)); {
	case b == unwrittenByte && exact:
		return Unwritten
	case b == unwrittenByte:
		return Unwritten + " before it was changed"
	case b == freedByte:
		return Freed
	}
	return strconv.Itoa(int(n))
}

// SequenceName names a sequence by its id.
func SequenceName(id int32) string {
	switch Value(id) {
	case strconv.Itoa(int(id)):
		return fmt.Sprintf("sequence %d", id)
	case Freed:
		return "a freed sequence"
	}
	return "a sequence without an id"
}

// fillOf returns the fill byte b if all bytes of the word are b, or 0 if there is no such fill byte. The program may
// have added or subtracted a small number, so fillOf also returns b for a word that is a little more or less. exact is
// then false.
func fillOf[T uint32 | uint64](word T) (b byte, exact bool) {
	const near = 4096
	for _, b := range []byte{unwrittenByte, freedByte} {
		if distance := word - fill[T](b); distance+near <= 2*near {
			return b, distance == 0
		}
	}
	return 0, false
}

func fill[T uint32 | uint64](b byte) T { return ^T(0) / 255 * T(b) }

func (p *player) pointee(address uint64) string {
	if address == 0 {
		return "NULL"
	}
	switch b, _ := fillOf(address); b {
	case unwrittenByte:
		return Unwritten
	case freedByte:
		return Freed
	}
	if start, size, found := p.containing(address); found {
		description := fmt.Sprintf("an allocation of %d bytes", size)
		if size == 1 {
			description = "an allocation of 1 byte"
		}
		if start != address {
			description = "part of " + description
		}
		return description
	}
	if bytes := p.subject.At(address, 4); bytes != nil && Value(ints(bytes)[0]) == Freed {
		return Freed
	}
	return fmt.Sprintf("%#x, which is no allocation", address)
}
