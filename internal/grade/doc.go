// Package grade takes a submission through the stages, gate to report, and says
// what it is worth. What is right is package oracle's to know; what a
// submission did is package compare's to see.
package grade
