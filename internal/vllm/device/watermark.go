package device

// Watermark is the part of a pool's blocks that is kept from new requests,
// rounded down.
func Watermark(part float64, blocks int) int { return int(part * float64(blocks)) }
