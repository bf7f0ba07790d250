// Package similar finds submissions that share code, by winnowing (Schleimer,
// Wilkerson, Aiken: Local Algorithms for Document Fingerprinting, SIGMOD 2003) over
// the tokens of cc/v4. What it finds are pairs for people to read, never proof, and
// never points.
//
// All names count as equal, and so do all strings. Comments and directives
// are left out. Every Gram consecutive tokens are hashed, and the least of every Window
// consecutive hashes is a fingerprint: if two files share Gram + Window - 1 consecutive
// tokens, they share at least one fingerprint.
package similar
