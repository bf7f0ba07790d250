//go:build invariants

package invariants

// Enabled says whether the program was built with -tags invariants.
const Enabled = true
