package main

/*
#include "translate.h"
*/
import "C"

import (
	"reflect"
	"unsafe"
)

// The memory of a call: every pointer of C is checked before it is used.

const (
	fewSpans    = 20      // of most calls, a step among them; they need no allocation
	mostEntries = 1 << 40 // of an array: no process has more memory
	mostStruct  = 4096    // bytes of a struct of any version
)

// A span is memory from one address to another, and its name in errors.
type span struct {
	what     string
	from, to uintptr
	written  bool
}

// spans is the memory that a call reads and writes. The first error is kept until apart returns it;
// nothing is read or written before that.
type spans struct {
	n    int
	few  [fewSpans]span
	more []span
	err  error
}

func (s *spans) at(i int) *span {
	if i < fewSpans {
		return &s.few[i]
	}
	return &s.more[i-fewSpans]
}

func (s *spans) add(what string, from, to uintptr) {
	if s.n >= fewSpans {
		s.more = append(s.more, span{})
	}
	s.n++
	*s.at(s.n - 1) = span{what: what, from: from, to: to}
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
		s.add(what, uintptr(p), uintptr(p)+uintptr(n)*size)
	}
}

// apart returns the first error, or an error if something overlaps with memory that is written.
func (s *spans) apart() error {
	if s.err != nil {
		return s.err
	}
	for i := 1; i < s.n; i++ {
		for j := range i {
			if a, b := s.at(i), s.at(j); (a.written || b.written) && a.from < b.to && b.from < a.to {
				return fail(C.LLM_CACHE_E_OVERLAP, "%s and %s overlap from %#x on", b.what, a.what, max(a.from, b.from))
			}
		}
	}
	return nil
}

// avoid records an error if memory that the call writes overlaps with noted memory. It does not
// note the memory itself, so two such pieces may overlap.
func (s *spans) avoid(what string, data []byte) {
	if s.err != nil || len(data) == 0 {
		return
	}
	from := uintptr(unsafe.Pointer(&data[0]))
	to := from + uintptr(len(data))
	for i := range s.n {
		if a := s.at(i); a.from < to && from < a.to {
			s.err = fail(C.LLM_CACHE_E_OVERLAP, "%s and %s overlap from %#x on", a.what, what, max(a.from, from))
			return
		}
	}
}

// noteOne notes what p points at, which the call writes.
func noteOne[T any](s *spans, what string, p *T) { output(s, what, p, 1) }

// output is slice for an array that the call writes.
func output[T any](s *spans, what string, p *T, n C.int64_t) []T {
	before := s.n
	array := slice(s, what, p, n)
	for i := before; i < s.n; i++ {
		s.at(i).written = true
	}
	return array
}

// slice is C's array of n entries for the length of a call, for reading; nil after
// an error.
func slice[T any](s *spans, what string, p *T, n C.int64_t) []T {
	var zero T
	s.note(what, unsafe.Pointer(p), int64(n), unsafe.Sizeof(zero), unsafe.Alignof(zero))
	if s.err != nil || n == 0 {
		return nil
	}
	return unsafe.Slice(p, int(n))
}

// size returns the size that a struct of C states in its first field.
func size[T any](s *spans, name string, p *T, least uintptr) (uintptr, error) {
	if s.note(name, unsafe.Pointer(p), 1, least, unsafe.Alignof(*p)); s.err != nil {
		return 0, s.err
	}
	n := uintptr(*(*uint32)(unsafe.Pointer(p)))
	if n < least || n > mostStruct {
		return 0, fail(C.LLM_CACHE_E_SIZE, "%s says it has %d bytes: want %d to %d", name, n, least, mostStruct)
	}
	if n < unsafe.Sizeof(*p) { // of an older header
		if what, inside := insideField(reflect.TypeFor[T](), n); inside {
			return 0, fail(C.LLM_CACHE_E_SIZE, "%s says it has %d bytes, which ends inside its field %s", name, n, what)
		}
	}
	last := s.at(s.n - 1)
	last.to = last.from + n
	return n, nil
}

// sized copies into ours the fields that both the caller and this library know. The other
// fields of ours stay 0. It fails if a field that only the caller knows is not 0.
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

// filled does what sized does, for a struct that the call also writes.
func filled[T any](s *spans, what string, p *T, least uintptr, ours *T) error {
	at := s.n
	err := sized(s, what, p, least, ours)
	if err == nil {
		s.at(at).written = true
	}
	return err
}

// insideField names the field of a struct in the middle of which n bytes end.
func insideField(t reflect.Type, n uintptr) (name string, inside bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case n <= f.Offset || n >= f.Offset+f.Type.Size():
		case f.Type.Kind() == reflect.Struct: // an array: its capacity may be unknown, its address not
			part, _ := insideField(f.Type, n-f.Offset)
			return f.Name + "." + part, true
		default:
			return f.Name, true
		}
	}
	return "", false
}

// room returns the first n entries of an array whose capacity was found to suffice.
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

// outputs collects the arrays of C that a call fills. First each is noted, then the entries that
// each needs are counted, and then all are filled or none.
type outputs struct {
	spans
	small   bool
	n       int
	lengths [fewSpans]length
	rest    []length
}

// A length is how many entries an array of C needs, and where to say so.
type length struct {
	at *C.int64_t
	n  C.int64_t
}

// need records that an array needs n entries, and whether it is too small. Nothing is written
// before fits, because the call can still fail until then.
func (o *outputs) need(capacity C.int64_t, at *C.int64_t, n int) {
	l := length{at, C.int64_t(n)}
	if o.n < len(o.lengths) {
		o.lengths[o.n] = l
		o.n++
	} else {
		o.rest = append(o.rest, l)
	}
	o.small = o.small || l.n > capacity
}

// fits sets the len of each array. After it the call can fail only because an array is too small.
func (o *outputs) fits() error {
	for _, l := range o.lengths[:o.n] {
		*l.at = l.n
	}
	for _, l := range o.rest {
		*l.at = l.n
	}
	if o.small {
		return fail(C.LLM_CACHE_E_SMALL, "an output array is too small: each len is what is needed")
	}
	return nil
}
