package attention

import "unsafe"

func (a *assembly) float16(d DType) bool { return a.expanded != nil && d.Size() == 1 }

func (a *assembly) expand(k *call, x []float32, factor float32, out []float32) {
	k.in, k.n, k.x, k.out = floats(x), len(x)/8, factor, floats(out)
	a.expanded(k)
}

func (a *assembly) pair(k *call, x []float32, factor float32) {
	k.in, k.n, k.x = floats(x), len(x)/16, factor
	a.paired(k)
}

func (a *assembly) words(k *call, d DType, in unsafe.Pointer, n int, out []uint16) (finite bool) {
	k.in, k.n, k.out, k.flag = in, n, unsafe.Pointer(&out[0]), 0
	a.toWords[d](k)
	return k.flag == 0
}

func (a *assembly) halfValues(k *call, d DType, p []float32, rows []row, n, place int, tiles *unsafe.Pointer, size int, out []float32, stride int) bool {
	at, width := 0, size
	if d == words {
		width = pieces(size)
	}
	k.flag = 0
	for at < len(rows) {
		f := widest(a.valuesTile[d], len(rows)-at)
		k.in, k.inStride, k.data = floats(p[at*scoreStride:]), scoreStride*4, unsafe.Pointer(tiles)
		k.n, k.first, k.size = n, place, width
		f.run(k)
		for i := range f.rows {
			k.in, k.out = unsafe.Add(k.room, i*4*MaxHeadSize), floats(out[(at+i)*stride:])
			k.n, k.x = (size+15)/16, rows[at+i].weight
			a.ordered(k)
		}
		at += f.rows
	}
	return k.flag == 0
}
