package compare

import (
	"fmt"
	"strconv"
)

// What grader/process/runner.c fills memory with is no number to a student.
const (
	Unwritten = "never written" // what malloc has returned
	Freed     = "freed memory"
)

// The bytes of either.
const (
	unwrittenByte = 0xa5
	freedByte     = 0xdd
)

// Value is a number in the submission's memory as a student reads it.
func Value(n int32) string {
	switch fillOf(uint64(uint32(n)) * (1<<32 + 1)) {
	case unwrittenByte:
		if uint32(n) != 0xa5a5a5a5 {
			return Unwritten + " before it was changed"
		}
		return Unwritten
	case freedByte:
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

// fillOf returns the byte that memory was filled with from which a word was read, 0 if it was another. A count or an
// offset may have been added.
func fillOf(word uint64) byte {
	const most = 4096
	for _, b := range []byte{unwrittenByte, freedByte} {
		if fill := uint64(b) * 0x0101010101010101; word-fill+most <= 2*most || uint32(word-fill)+most <= 2*most {
			return b
		}
	}
	return 0
}

// pointee says what a pointer of the submission leads to.
func (p *player) pointee(address uint64) string {
	if address == 0 {
		return "NULL"
	}
	switch fillOf(address) {
	case unwrittenByte:
		return Unwritten
	case freedByte:
		return Freed
	}
	if at, size, found := p.home(address); found && at == address {
		return fmt.Sprintf("an allocation of %d bytes", size)
	} else if found {
		return fmt.Sprintf("part of an allocation of %d bytes", size)
	}
	if bytes := p.subject.At(address, 4); bytes != nil && Value(ints(bytes)[0]) == Freed {
		return Freed
	}
	return fmt.Sprintf("%#x, which is no allocation", address)
}
