package attention

func instructionSets() []kernels {
	sets := []kernels{portable{}}
	if hasAVX2() {
		sets = append(sets, &avx2)
	}
	if hasAVX512() {
		sets = append(sets, &avx512)
	}
	if hasVNNI() {
		sets = append(sets, &avx512vnni)
	}
	return sets
}
