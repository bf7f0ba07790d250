package workload

// Tokens appends the ids of a request's prompt and output to dst. index is the request's number in its workload, below
// 2^30. Ids are at least 0 and below 2^31.
//
// Requests begin with equal ids only in these cases:
//
//   - Two requests with hashes have equal ids in all blocks before the first block with different hashes.
//   - If a request without hashes is a turn of a session, it begins with all ids of the previous turn.
//   - Other requests without hashes have equal ids in their first Shared tokens.
//
// Hashes should be in 0..2^30-1, as Mooncake's are. Blocks with different hashes then have different first ids.
func Tokens(dst []int32, r *Request, index int) []int32 {
	pos := 0
	if r.Session > 0 && len(r.Hashes) == 0 {
		for ; pos < r.Prompt+r.Output; pos++ { // answers too: the next prompt begins with them
			dst = append(dst, private(mix(1<<63|uint64(r.Session), uint64(pos))))
		}
		return dst
	}
	if len(r.Hashes) == 0 {
		for ; pos < min(r.Shared, r.Prompt); pos++ {
			dst = append(dst, common(mix(0, uint64(pos))))
		}
	}
	chain := uint64(1)
	for i, h := range r.Hashes {
		// The first id of a block is its hash, so different blocks differ in their first id.
		chain = mix(chain, uint64(h))
		end, word := min((i+1)*hashTokens, r.Prompt), uint64(h)
		for ; pos < end; pos++ {
			dst = append(dst, common(word))
			word = mix(chain, uint64(pos))
		}
	}
	for word := uint64(index); pos < r.Prompt+r.Output; pos++ {
		dst = append(dst, private(word))
		word = mix(^uint64(index), uint64(pos))
	}
	return dst
}

// Common returns how many tokens at the start of a prompt may also be at the start of other requests' prompts.
func Common(r *Request) int {
	if len(r.Hashes) > 0 || r.Session > 0 {
		return r.Prompt
	}
	return min(r.Shared, r.Prompt)
}

// common returns an id below 2^30, for tokens that several requests have. private returns an id from 2^30 on,
// for tokens of one request or session.
func common(word uint64) int32  { return int32(word & (1<<30 - 1)) }
func private(word uint64) int32 { return common(word) | 1<<30 }

// mix returns a hash of two words: SplitMix64's steps and constants.
func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 + b + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
