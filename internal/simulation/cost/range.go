package cost

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// checkRanges returns an error for the first field of a struct that is out of range. The tag of a field has the
// smallest and the largest allowed value: `range:"0 1"`.
func checkRanges(s any) error {
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		lowest, highest, ok := strings.Cut(field.Tag.Get("range"), " ")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if err := checkRange(name, v.Field(i).Convert(reflect.TypeFor[float64]()).Float(), lowest, highest); err != nil {
			return err
		}
	}
	return nil
}

func checkRange(name string, v float64, lowest, highest string) error {
	low, err1 := strconv.ParseFloat(lowest, 64)
	high, err2 := strconv.ParseFloat(highest, 64)
	if err1 != nil || err2 != nil || !(v >= low && v <= high) {
		return fmt.Errorf("%s is %v, must be from %s to %s", name, v, lowest, highest)
	}
	return nil
}
