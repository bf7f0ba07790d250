// Package similar finds submissions that share code, by winnowing (Schleimer,
// Wilkerson, Aiken: Local Algorithms for Document Fingerprinting, SIGMOD 2003) over
// the tokens of cc/v4. What it finds are pairs for people to read, never proof, and
// never points.
//
// Names are alike, whatever they are, and so are strings. Comments and directives
// are left out. Every Gram tokens in a row are hashed, and of each Window hashes in a
// row the least is a fingerprint: of any Gram + Window - 1 tokens that two files
// share, at least one fingerprint is the same.
package similar
