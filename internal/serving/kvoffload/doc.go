// Package kvoffload keeps blocks of keys and values, or of states, outside the process, in files of one host (Folder)
// and in Redis or Valkey (Redis). The blocks outlive the process, and other servers can read them. An Offloader moves
// blocks between a server and its tiers in the background. A block's name is its Space and its hash. The hash depends
// on the block's tokens, all tokens before them, the salt, the adapter, and the group of layers. The Space stands for
// the rest: the weights, the shape and type of keys and values, and the arithmetic. A block is stored with its name
// and a checksum (see encode). A block with a wrong name or checksum is removed and counts as missing. The checksum
// detects damage, not forgery: anybody who can write to a tier decides what is read from it. If a tier is slow or
// unreachable, its blocks count as missing and the server computes them. A tier that is full and can remove nothing
// stores no more blocks. Package sched decides which blocks a request loads; package kvstore has their memory. This
// package uses neither.
package kvoffload
