// Package lexeme implements the terminal symbols of grammars as automata over bytes: plain texts, special tokens, JSON
// strings, names of members, numbers and punctuation. White space may come before most of them.
//
// The states of a lexeme are computed when they are first reached, and each can reach the end of the lexeme. Package
// grammar decides the lexemes that may follow. Package structured decides the tokens that may follow in a state.
package lexeme
