package device

// Watermark is the number of blocks of a pool that new requests must leave free, rounded down.
func Watermark(part float64, blocks int) int { return int(part * float64(blocks)) }
