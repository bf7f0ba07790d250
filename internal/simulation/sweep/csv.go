package sweep

import (
	"encoding/csv"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"llmmemory/internal/simulation/sim"
)

// writeCSV writes a row for each job, in the order of the grid: the job, its error if it failed, and every number of
// the result. Times are in seconds, except the times of iterations, which are in milliseconds. If jobs have ranges,
// the last columns have both ends of each range.
func (st *State) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	head := append([]string{"system", "block_size", "rate", "seed", "error"},
		columns("", reflect.TypeFor[sim.Result]())...)
	figures := len(head)
	head = append(head, "requests_per_second", "tokens_per_second", "max_concurrency")
	ranges := slices.ContainsFunc(st.Outcomes, func(o *Outcome) bool { return len(o.Range) > 0 })
	for _, q := range ranged {
		if ranges {
			head = append(head, q.name+"_least", q.name+"_most")
		}
	}
	if err := c.Write(head); err != nil {
		return err
	}
	for _, o := range st.Outcomes {
		row := []string{o.System, strconv.Itoa(o.BlockSize), number(o.Rate), strconv.FormatUint(o.Seed, 10), o.Error}
		if r := o.Result; r != nil {
			row = cells(row, reflect.ValueOf(*r))
			row = append(row, number(requestRate(r)), number(tokenRate(r)))
		} else {
			row = append(row, make([]string, figures+2-len(row))...)
		}
		row = append(row, strconv.Itoa(o.MaxConcurrency))
		for _, q := range ranged {
			switch {
			case len(o.Range) > 0:
				low, high := o.rangeOf(q.quantity)
				row = append(row, number(low), number(high))
			case ranges:
				row = append(row, "", "")
			}
		}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

var ranged = []struct {
	name     string
	quantity func(r *sim.Result) float64
}{
	{"requests_per_second", requestRate}, {"tokens_per_second", tokenRate},
	{"first_p50", firstToken}, {"between_p50", perToken},
}

func requestRate(r *sim.Result) float64 { return perSecond(r.Answered, r) }
func tokenRate(r *sim.Result) float64   { return perSecond(r.Generated, r) }
func firstToken(r *sim.Result) float64  { return r.TTFT.P50 }
func perToken(r *sim.Result) float64    { return r.TPOT.P50 }

// rangeOf returns the ends of the range of a quantity. o.Range must not be empty.
func (o *Outcome) rangeOf(quantity func(r *sim.Result) float64) (low, high float64) {
	a, b := quantity(o.Range[0]), quantity(o.Range[1])
	return min(a, b), max(a, b)
}

func perSecond(n int, r *sim.Result) float64 {
	if r.Seconds == 0 {
		return 0
	}
	return float64(n) / r.Seconds
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// columns returns the names of the numbers in a struct: the JSON name normalized.p50 becomes normalized_p50.
func columns(prefix string, t reflect.Type) []string {
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name = prefix + snake(name); f.Type.Kind() == reflect.Struct {
			all = append(all, columns(name+"_", f.Type)...)
		} else {
			all = append(all, name)
		}
	}
	return all
}

func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func cells(row []string, v reflect.Value) []string {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Struct:
			row = cells(row, f)
		case reflect.Int:
			row = append(row, strconv.FormatInt(f.Int(), 10))
		case reflect.Float64:
			row = append(row, number(f.Float()))
		case reflect.String:
			row = append(row, f.String())
		default:
			panic("sweep: a figure that is " + f.Kind().String())
		}
	}
	return row
}
