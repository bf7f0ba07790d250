// Package drawing draws the memory around a difference three times: before the
// call, as expected after it, and as it is. In the second picture, what the call had
// to change is bold or in colour, and listed in words; in the third, what differs from the
// expected state is. A value has no sign in front of it that could be taken for one of C.
//
// What is drawn is decided once (view.go); Text and SVG lay it out. Nothing here
// runs anything or decides what is right.
package drawing
