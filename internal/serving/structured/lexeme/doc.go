// Package lexeme holds the terminal symbols of grammars as automata over bytes: texts as they are, JSON strings, names
// of members, numbers and punctuation with the white space before them.
//
// The states of a lexeme are found as they are reached, and each can reach the end of the lexeme. Which lexeme may
// follow which is decided in grammar, which tokens fit a state in structured.
package lexeme
