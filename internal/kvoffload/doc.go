// Package kvoffload keeps blocks of keys and values outside the process, so that they outlive it and
// other servers can read them: in files of one host (Folder) and in Redis or Valkey (Redis). An Offloader
// moves blocks between a server and its tiers in the background.
//
// A block is stored under its name: the Space, which stands for everything that its bytes depend on
// beside the tokens, and the block's chain of hashes. It is stored with its name and a checksum (see
// encode), and a block that does not pass both is removed and counts as missing. The checksum finds
// damage, not forgery: whoever can write to a tier decides what is read from it.
//
// A tier may be slow, full, wrong or gone. Then a block is missing, and the server computes it. Which
// requests load, and which blocks they get, is decided in vllm/v1/sched; the memory of blocks is
// kvstore's. Neither is known here.
package kvoffload
