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
	fewSpans   = 20      // ranges that a call can add without an allocation; enough for a step
	maxEntries = 1 << 40 // entries of an array; no process has more memory
	maxStruct  = 4096    // bytes of a struct of any version
)

// A span is a range of the caller's memory, with a name for error messages.
type span struct {
	name       string
	start, end uintptr
	written    bool
}

// spans is the list of memory ranges that a call reads and writes. The first error about a range is kept until
// checkOverlaps returns it. If there are several ranges, the call must not write to them before checkOverlaps.
type spans struct {
	n     int
	first [fewSpans]span
	rest  []span
	err   error
}

func (s *spans) get(i int) *span {
	if i < fewSpans {
		return &s.first[i]
	}
	return &s.rest[i-fewSpans]
}

func (s *spans) add(name string, start, end uintptr) {
	if s.n >= fewSpans {
		s.rest = append(s.rest, span{})
	}
	s.n++
	*s.get(s.n - 1) = span{name: name, start: start, end: end}
}

func (s *spans) note(name string, p unsafe.Pointer, n int64, size, align uintptr) {
	if s.err != nil || n == 0 {
		return
	}
	switch {
	case n < 0 || n > maxEntries:
		s.err = fail(C.LLM_CACHE_E_RANGE, "%s has %d entries", name, n)
	case p == nil:
		s.err = fail(C.LLM_CACHE_E_NULL, "%s is NULL", name)
	case uintptr(p)%align != 0:
		s.err = fail(C.LLM_CACHE_E_ALIGN, "%s is not aligned to %d bytes", name, align)
	case uintptr(p)+uintptr(n)*size < uintptr(p):
		s.err = fail(C.LLM_CACHE_E_RANGE, "%s reaches beyond the end of memory", name)
	default:
		s.add(name, uintptr(p), uintptr(p)+uintptr(n)*size)
	}
}

// checkOverlaps returns the first error about a range in the list. If there is none, it returns an error if a range
// that the call writes overlaps with another range.
func (s *spans) checkOverlaps() error {
	if s.err != nil {
		return s.err
	}
	for i := 1; i < s.n; i++ {
		for j := range i {
			if a, b := s.get(i), s.get(j); (a.written || b.written) && a.start < b.end && b.start < a.end {
				return fail(C.LLM_CACHE_E_OVERLAP, "%s and %s overlap from %#x on", b.name, a.name, max(a.start, b.start))
			}
		}
	}
	return nil
}

// avoid records an error if data, which the call writes, overlaps with a range in the list. avoid does not add data to
// the list, so two slices that are passed to avoid may overlap.
func (s *spans) avoid(name string, data []byte) {
	if s.err != nil || len(data) == 0 {
		return
	}
	start := uintptr(unsafe.Pointer(&data[0]))
	end := start + uintptr(len(data))
	for i := range s.n {
		if a := s.get(i); a.start < end && start < a.end {
			s.err = fail(C.LLM_CACHE_E_OVERLAP, "%s and %s overlap from %#x on", a.name, name, max(a.start, start))
			return
		}
	}
}

// noteOne adds the value at p, which the call writes, to the list of ranges.
func noteOne[T any](s *spans, name string, p *T) { output(s, name, p, 1) }

// output does the same as slice, for an array that the call writes.
func output[T any](s *spans, name string, p *T, n C.int64_t) []T {
	before := s.n
	array := slice(s, name, p, n)
	for i := before; i < s.n; i++ {
		s.get(i).written = true
	}
	return array
}

// slice adds an array of the caller, which the call reads, to the list of ranges. It returns the array as a slice that
// is valid during the call. After an error it returns nil.
func slice[T any](s *spans, name string, p *T, n C.int64_t) []T {
	var zero T
	s.note(name, unsafe.Pointer(p), int64(n), unsafe.Sizeof(zero), unsafe.Alignof(zero))
	if s.err != nil || n == 0 {
		return nil
	}
	return unsafe.Slice(p, int(n))
}

// size returns the size that the caller has put into the first field of a struct, and adds the struct to s. It returns
// an error if the pointer is not valid, if the size is below minimum or above maxStruct, or if the struct ends inside a
// field.
func size[T any](s *spans, name string, p *T, minimum uintptr) (uintptr, error) {
	if s.note(name, unsafe.Pointer(p), 1, minimum, unsafe.Alignof(*p)); s.err != nil {
		return 0, s.err
	}
	n := uintptr(*(*uint32)(unsafe.Pointer(p)))
	if n < minimum || n > maxStruct {
		return 0, fail(C.LLM_CACHE_E_SIZE, "%s says it has %d bytes: want %d to %d", name, n, minimum, maxStruct)
	}
	if n < unsafe.Sizeof(*p) { // of an older header
		if field, found := insideField(reflect.TypeFor[T](), n); found {
			return 0, fail(C.LLM_CACHE_E_SIZE, "%s says it has %d bytes, which ends inside its field %s", name, n, field)
		}
	}
	last := s.get(s.n - 1)
	last.end = last.start + n
	return n, nil
}

// readStruct copies a struct of the caller to out: the fields that both the caller's header and this library have.
// Other fields of out stay 0. The caller's header may be newer than this library and define more fields. readStruct
// returns the error of size, or an error if one of these additional fields is not 0.
func readStruct[T any](s *spans, name string, p *T, minimum uintptr, out *T) error {
	n, err := size(s, name, p, minimum)
	if err != nil {
		return err
	}
	theirs := unsafe.Slice((*byte)(unsafe.Pointer(p)), n)
	known := min(n, unsafe.Sizeof(*p))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(out)), known), theirs)
	for i, b := range theirs[known:] {
		if b != 0 {
			return fail(C.LLM_CACHE_E_SIZE, "%s asks at byte %d for what this library does not know", name, int(known)+i)
		}
	}
	return nil
}

// insideField returns the name of the field of struct t that begins before byte n and ends after it. If this field is
// itself a struct, the name of its inner field follows after a dot. found is false if there is no such field.
func insideField(t reflect.Type, n uintptr) (name string, found bool) {
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
func text(name string, p *C.char) (string, error) {
	if p == nil {
		return "", nil
	}
	for n := range C.LLM_CACHE_MAX_TEXT + 1 {
		if *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) == 0 {
			return string(unsafe.Slice((*byte)(unsafe.Pointer(p)), n)), nil
		}
	}
	return "", fail(C.LLM_CACHE_E_RANGE, "%s has more than %d bytes", name, C.LLM_CACHE_MAX_TEXT)
}

// outputs is the state of a library call that writes results to the caller's C arrays. The call lists these arrays in
// one function, by calling reserve, putSlice or put for each array. The function runs three times: first it adds the
// arrays to the list of memory ranges, then it checks that they are large enough, and at last it writes them.
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

// readOutStruct does the same as readStruct, for a struct that the call also writes.
func readOutStruct[T any](o *outputs, name string, p *T, minimum uintptr, out *T) error {
	i := o.n
	err := readStruct(&o.spans, name, p, minimum, out)
	if err == nil {
		o.get(i).written, o.end = true, o.get(i).end
	}
	return err
}

var errSmall = fail(C.LLM_CACHE_E_SMALL, "an output array is too small: each len is what is needed")

// fill writes the arrays and sets their lengths. put is the function that lists the arrays of the call. If an array is
// too small, fill only sets the lengths, and returns an error. If C's struct ends before an array that is needed, fill
// changes nothing and returns an error.
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

// reserve handles one output array of the call, which needs n entries. array points to the first of three consecutive
// fields of a C struct:
//
//	{T *at; int64_t cap, len;}
//
// reserve acts according to o.pass. In the last pass, if all arrays are large enough, it returns the n entries for the
// caller to write. Otherwise it returns nil.
func reserve[T, E any](o *outputs, name string, array **E, n int) []T {
	a := (*struct {
		entries  *T
		cap, len C.int64_t
	})(unsafe.Pointer(array))
	switch {
	case o.end > 0 && uintptr(unsafe.Pointer(array)) >= o.end:
		if n > 0 && o.pass == counting && o.err == nil {
			o.err = fail(C.LLM_CACHE_E_SIZE, "the struct ends before its field %s, which is needed", name)
		}
	case o.pass == noting:
		output(&o.spans, name, *array, a.cap)
	case o.pass == counting:
		o.small = o.small || C.int64_t(n) > a.cap
	default:
		if a.len = C.int64_t(n); !o.small {
			return unsafe.Slice(a.entries, n)
		}
	}
	return nil
}

func putSlice[T, E any](o *outputs, name string, array **E, list []T) {
	copy(reserve[T](o, name, array, len(list)), list)
}

// put converts the entries of list and writes them to an output array. array is as for reserve.
func put[From, To any](o *outputs, name string, array **To, list []From, convert func(*From) To) {
	dst := reserve[To](o, name, array, len(list))
	for i := range dst {
		dst[i] = convert(&list[i])
	}
}
