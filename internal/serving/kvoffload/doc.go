// Package kvoffload keeps blocks of keys and values outside the process, so that they outlive it and other servers can
// read them: in files of one host (Folder) and in Redis or Valkey (Redis). An Offloader moves blocks between a server
// and its tiers in the background. A block's name is its Space, which identifies everything that determines its bytes
// except the tokens, and its hash, which covers its tokens and all tokens before them. A block is stored with its name
// and a checksum (see encode). A block whose name or checksum is wrong is removed and counts as missing. The checksum
// detects damage, not forgery: anybody who can write to a tier decides what is read from it. If a tier is slow, full or
// unreachable, its blocks count as missing and the server computes them. Package sched decides which requests load
// which blocks; package kvstore has their memory. This package uses neither.
package kvoffload
