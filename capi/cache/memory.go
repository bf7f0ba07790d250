package main

/*
#include "translate.h"
*/
import "C"

import "unsafe"

// The memory of a call: everything that C points at is noted before it is used.

const (
	mostSpans   = 16
	mostEntries = 1 << 40 // of an array: no process has more memory
	mostStruct  = 4096    // bytes of a struct of any version
)

// spans is the memory that a call reads and writes. The first complaint stays
// until apart tells it: nothing may be read or written before.
type spans struct {
	n   int
	at  [mostSpans]struct{ from, to uintptr }
	err error
}

// note adds n entries of a size and alignment at p.
func (s *spans) note(what string, p unsafe.Pointer, n int64, size, align uintptr) {
	if s.err != nil || n == 0 {
		return
	}
	switch {
	case n < 0 || n > mostEntries:
		s.err = fail(C.LLM_CACHE_E_RANGE, "%s has %d entries", what, n)
	case p == nil:
		s.err = fail(C.LLM_CACHE_E_NULL, "%s is NULL", what)
	case uintptr(p)%align != 0:
		s.err = fail(C.LLM_CACHE_E_ALIGN, "%s is not aligned to %d bytes", what, align)
	case uintptr(p)+uintptr(n)*size < uintptr(p):
		s.err = fail(C.LLM_CACHE_E_RANGE, "%s reaches beyond the end of memory", what)
	default:
		s.at[s.n].from, s.at[s.n].to = uintptr(p), uintptr(p)+uintptr(n)*size
		s.n++
	}
}

// apart wants that there was no complaint, and that no two spans overlap.
func (s *spans) apart() error {
	if s.err != nil {
		return s.err
	}
	for i := 1; i < s.n; i++ {
		for j := range i {
			if s.at[i].from < s.at[j].to && s.at[j].from < s.at[i].to {
				return fail(C.LLM_CACHE_E_OVERLAP, "two arrays or structs overlap from %#x on", max(s.at[i].from, s.at[j].from))
			}
		}
	}
	return nil
}

func noteOne[T any](s *spans, what string, p *T) {
	s.note(what, unsafe.Pointer(p), 1, unsafe.Sizeof(*p), unsafe.Alignof(*p))
}

// slice is C's array of n entries for the length of a call; nil after a
// complaint.
func slice[T any](s *spans, what string, p *T, n C.int64_t) []T {
	var zero T
	s.note(what, unsafe.Pointer(p), int64(n), unsafe.Sizeof(zero), unsafe.Alignof(zero))
	if s.err != nil || n == 0 {
		return nil
	}
	return unsafe.Slice(p, int(n))
}

// size is how many bytes a struct of C that begins with its size says it has.
func size[T any](s *spans, what string, p *T, least uintptr) (uintptr, error) {
	if s.note(what, unsafe.Pointer(p), 1, least, unsafe.Alignof(*p)); s.err != nil {
		return 0, s.err
	}
	n := uintptr(*(*uint32)(unsafe.Pointer(p)))
	if n < least || n > mostStruct {
		return 0, fail(C.LLM_CACHE_E_SIZE, "%s says it has %d bytes: want %d to %d", what, n, least, mostStruct)
	}
	s.at[s.n-1].to = s.at[s.n-1].from + n
	return n, nil
}

// sized copies what both sides know of such a struct to ours, where the rest
// stays 0. What only C knows must be 0.
func sized[T any](s *spans, what string, p *T, least uintptr, ours *T) error {
	n, err := size(s, what, p, least)
	if err != nil {
		return err
	}
	theirs := unsafe.Slice((*byte)(unsafe.Pointer(p)), n)
	known := min(n, unsafe.Sizeof(*p))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(ours)), known), theirs)
	for i, b := range theirs[known:] {
		if b != 0 {
			return fail(C.LLM_CACHE_E_SIZE, "%s asks at byte %d for what this library does not know", what, int(known)+i)
		}
	}
	return nil
}

// room is the first n entries of an array whose capacity was found to suffice.
func room[T any](p *T, n C.int64_t) []T { return unsafe.Slice(p, int(n)) }

// text is a C string of at most LLM_CACHE_MAX_TEXT bytes; NULL is "".
func text(what string, p *C.char) (string, error) {
	if p == nil {
		return "", nil
	}
	for n := range C.LLM_CACHE_MAX_TEXT + 1 {
		if *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) == 0 {
			return string(unsafe.Slice((*byte)(unsafe.Pointer(p)), n)), nil
		}
	}
	return "", fail(C.LLM_CACHE_E_RANGE, "%s has more than %d bytes", what, C.LLM_CACHE_MAX_TEXT)
}

// outputs collects arrays of C that a call fills: first each is noted, then it
// is known how many entries each needs, then all are filled or none.
type outputs struct {
	spans
	small bool
}

// need sets len to n, and remembers when the array is too small for that. It
// comes when nothing can fail any more but for lack of room.
func (o *outputs) need(capacity C.int64_t, length *C.int64_t, n int) {
	*length = C.int64_t(n)
	o.small = o.small || int64(n) > int64(capacity)
}

func (o *outputs) fits() error {
	if o.small {
		return fail(C.LLM_CACHE_E_SMALL, "an output array is too small: each len is what is needed")
	}
	return nil
}
