// Package bytesize writes numbers of bytes for people.
package bytesize

import (
	"math"
	"strconv"
)

// Bytes is n rounded down, with a digit after the point if that is not 0:
// "700 B", "19.5 GiB", "20 GiB". What is less than a round number of them never
// looks like it, as what a host has beside what it needs.
func Bytes[T int | int64 | uint64](n T) string {
	v, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1024 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return strconv.FormatFloat(math.Floor(v*10)/10, 'f', -1, 64) + " " + units[0]
}
