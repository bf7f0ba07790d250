package main

/*
#include "translate.h"
*/
import "C"

import (
	"reflect"
	"unsafe"
)

// This file checks the memory that C passes. Every pointer from C is checked before it is used.

const (
	fewSpans   = 20      // number of spans that a call can note without an allocation; enough for a step
	maxEntries = 1 << 40 // entries of an array; no process has more memory
	maxStruct  = 4096    // bytes of a struct of any version
)

// A span is a range of memory. what is its name in error messages.
type span struct {
	what     string
	from, to uintptr
	written  bool
}

// spans are the ranges of memory that a call reads and writes. The first error about them is kept until checkOverlaps
// returns it. Before that, the call must not read or write the memory.
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

func (s *spans) note(what string, p unsafe.Pointer, n int64, size, align uintptr) {
	if s.err != nil || n == 0 {
		return
	}
	switch {
	case n < 0 || n > maxEntries:
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

// checkOverlaps returns the first error about the noted memory. Without such an error, it returns an error if memory
// that the call writes overlaps with other noted memory.
func (s *spans) checkOverlaps() error {
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

// avoid records an error if data, which the call writes, overlaps with noted memory. avoid does not note data, so two
// ranges that are passed to avoid may overlap.
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

// noteOne notes the value at p, which the call writes.
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

// slice notes an array of the caller, which the call reads, and returns it as a slice, or nil after an error. The
// slice is valid during the call.
func slice[T any](s *spans, what string, p *T, n C.int64_t) []T {
	var zero T
	s.note(what, unsafe.Pointer(p), int64(n), unsafe.Sizeof(zero), unsafe.Alignof(zero))
	if s.err != nil || n == 0 {
		return nil
	}
	return unsafe.Slice(p, int(n))
}

// size returns the size that the caller has put into the first field of a struct. It returns an error if this size is
// below least.
func size[T any](s *spans, name string, p *T, least uintptr) (uintptr, error) {
	if s.note(name, unsafe.Pointer(p), 1, least, unsafe.Alignof(*p)); s.err != nil {
		return 0, s.err
	}
	n := uintptr(*(*uint32)(unsafe.Pointer(p)))
	if n < least || n > maxStruct {
		return 0, fail(C.LLM_CACHE_E_SIZE, "%s says it has %d bytes: want %d to %d", name, n, least, maxStruct)
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

// readStruct copies a struct of the caller to out: the fields that both the caller's header and this library have.
// Other fields of out stay 0. readStruct returns an error if a field that only the caller's header has is not 0.
func readStruct[T any](s *spans, what string, p *T, least uintptr, out *T) error {
	n, err := size(s, what, p, least)
	if err != nil {
		return err
	}
	theirs := unsafe.Slice((*byte)(unsafe.Pointer(p)), n)
	known := min(n, unsafe.Sizeof(*p))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(out)), known), theirs)
	for i, b := range theirs[known:] {
		if b != 0 {
			return fail(C.LLM_CACHE_E_SIZE, "%s asks at byte %d for what this library does not know", what, int(known)+i)
		}
	}
	return nil
}

// insideField returns the field of struct t inside which byte n is: the field begins before byte n and does not end
// there.
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

// text returns a C string, which can have at most LLM_CACHE_MAX_TEXT bytes, or "" for NULL.
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

// outputs is the memory of a call that fills arrays of C. The call lists its arrays in one function, by calling
// reserve, putSlice or put for each. This function runs three times: to note the memory before anything else happens,
// to check that the arrays are large enough, and to write the arrays.
type outputs struct {
	spans
	end   uintptr // end of C's struct, which may come from an older header; 0 means that it has all fields
	pass  pass
	small bool // some array is too small
}

type pass uint8

const (
	noting pass = iota
	counting
	writing
)

// readOutStruct is readStruct for a struct that the call also writes.
func readOutStruct[T any](o *outputs, what string, p *T, least uintptr, out *T) error {
	i := o.n
	err := readStruct(&o.spans, what, p, least, out)
	if err == nil {
		o.at(i).written, o.end = true, o.at(i).to
	}
	return err
}

var errSmall = fail(C.LLM_CACHE_E_SMALL, "an output array is too small: each len is what is needed")

// fill writes all arrays that the function put lists, and sets their lengths. If an array is too small, fill only sets
// the lengths, and returns an error.
func (o *outputs) fill(put func()) error {
	o.pass = counting
	if put(); o.err != nil {
		return o.err
	}
	o.pass = writing
	if put(); o.small {
		return errSmall
	}
	return nil
}

// reserve lists an array of C, {T *at; int64_t cap, len;}, that needs n entries. It returns the entries when they must
// be written, otherwise nil.
func reserve[T, E any](o *outputs, name string, at **E, n int) []T {
	a := (*struct {
		at       *T
		cap, len C.int64_t
	})(unsafe.Pointer(at))
	switch {
	case o.end > 0 && uintptr(unsafe.Pointer(at)) >= o.end:
		if n > 0 && o.pass == counting && o.err == nil {
			o.err = fail(C.LLM_CACHE_E_SIZE, "the struct ends before its field %s, which is needed", name)
		}
	case o.pass == noting:
		output(&o.spans, name, *at, a.cap)
	case o.pass == counting:
		o.small = o.small || C.int64_t(n) > a.cap
	default:
		if a.len = C.int64_t(n); !o.small {
			return unsafe.Slice(a.at, n)
		}
	}
	return nil
}

func putSlice[T, E any](o *outputs, name string, at **E, list []T) {
	copy(reserve[T](o, name, at, len(list)), list)
}

// put lists an array that gets the entries of list, converted.
func put[From, To any](o *outputs, name string, at **To, list []From, convert func(*From) To) {
	to := reserve[To](o, name, at, len(list))
	for i := range to {
		to[i] = convert(&list[i])
	}
}
