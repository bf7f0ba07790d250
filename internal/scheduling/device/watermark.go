package device

// Watermark returns how many blocks of a pool new requests must leave free: part of them, rounded down.
func Watermark(part float64, blocks int) int { return int(part * float64(blocks)) }
