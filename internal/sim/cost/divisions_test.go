package cost

import (
	"fmt"
	"slices"
	"testing"

	"llmmemory/internal/testkit/level"
)

// divisions is how many other divisions of the points are tried.
const divisions = 20

// A divided has the errors of a release on a GPU over the divisions.
type divided struct {
	medians, worst []float64 // one for each division, of its half that was not fitted
	inside         int       // divisions in which both are within the target
}

// Ensure that divisions.csv has the errors that come out of other divisions; -update writes it.
func TestOtherDivisionsHaveTheStatedErrors(t *testing.T) {
	if !level.Long() {
		t.Skipf("fits all engines %d times; set LLM_TEST_LONG=1", divisions)
	}
	table := "release,GPU,median error,worst error,divisions within 15 % and 35 %\n"
	all, names := otherDivisions(t)
	for _, name := range names {
		d := all[name]
		table += fmt.Sprintf("%s,%.0f %%,%.0f %%,%d\n", name, 100*median(d.medians), 100*median(d.worst), d.inside)
	}
	requireTable(t, "divisions", table)
}

// otherDivisions fits all constants in each division, and has the errors of the other half
// by release and GPU. Points that were added later are fitted in each.
func otherDivisions(t *testing.T) (all map[string]*divided, names []string) {
	all = map[string]*divided{}
	for i := range divisions {
		salt := fmt.Sprintf("division %d|", i+1)
		for _, g := range fitGroups(fittedHalves(salt)) {
			f := g.fit(t)
			for _, of := range f.pairs {
				fitted, heldOut := split(g.engine, of.release, of.gpu, salt)
				if len(fitted)+len(heldOut) < leastPoints {
					continue
				}
				name := g.engine + " " + of.release + "," + of.gpu
				if all[name] == nil {
					all[name] = &divided{}
					names = append(names, name)
				}
				all[name].add(t, heldOut, f.of(of))
			}
		}
	}
	slices.Sort(names)
	return all, names
}

func (d *divided) add(t *testing.T, heldOut []measurement, e Engine) {
	errors, _ := errorsWith(t, heldOut, e)
	d.medians, d.worst = append(d.medians, errors.Median), append(d.worst, errors.Worst)
	if errors.Median <= 0.15 && errors.Worst <= 0.35 {
		d.inside++
	}
}

// median returns the lower of the two middle ones of an even number.
func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[(len(all)-1)/2]
}
