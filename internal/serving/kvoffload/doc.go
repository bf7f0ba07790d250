// Package kvoffload keeps blocks of keys and values outside the process, so that they outlive it and
// other servers can read them: in files of one host (Folder) and in Redis or Valkey (Redis). An Offloader
// moves blocks between a server and its tiers in the background.
//
// A block is stored under its name: the Space, which identifies everything except the tokens that
// determines the block's bytes, and the block's chain of hashes. It is stored with its name and a
// checksum (see encode). A block whose name or checksum is wrong is removed and counts as missing. The
// checksum finds damage, not forgery: whoever can write to a tier decides what is read from it.
//
// A tier may be slow, full, wrong or gone. Then a block is missing, and the server computes it. Package
// sched decides which requests load and which blocks they get, and package kvstore has the memory of
// the blocks. This package knows neither.
package kvoffload
