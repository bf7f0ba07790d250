// Package drawing draws the memory around a difference three times: before the
// call, as expected after it, and as it is. In the second picture "*" marks what
// the call had to change, in the third "!" marks what differs from the
// expected state; colour alone marks nothing.
//
// What is drawn is decided once (view.go); Text and SVG lay it out. Nothing here
// runs anything or decides what is right.
package drawing
