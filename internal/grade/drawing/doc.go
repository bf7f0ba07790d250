// Package drawing draws the memory around a difference three times: before the
// call, as it had to be after it, and as it is. What the call had to change is
// marked with "*" in the second picture, what is not as it had to be with "!" in
// the third, never by colour alone.
//
// What is drawn is decided once (view.go); Text and SVG lay it out. Nothing here
// runs anything or decides what is right.
package drawing
