// Package blockhash hashes blocks of tokens. The hash of a block covers the hash of the previous
// block, the token ids, and the extra keys that give equal tokens a different meaning (LoRA adapter,
// multimodal items, cache salt; vllm/v1/RULES.md §3). So it identifies the block and all
// blocks before it.
//
// There are three functions. LE is used in the recorded traces; CBOR is vLLM's sha256_cbor. Both are
// SHA-256, for which no collision can be found, so a prefix hit is as reliable as a comparison of the
// tokens. Fast is XXH3-128 with a secret seed of this process: among billions of blocks, the
// probability that two different prompts have equal hashes is about 2^-64. But XXH3 gives no
// guarantee against an attacker who chooses prompts and observes hits by their timing. A collision
// would give one user the keys and values of another user's prompt. Use Fast only if all users of a
// cache may see each other's data, or give each tenant its own salt.
package blockhash
