// Package bytesize writes numbers of bytes for people.
package bytesize

import (
	"math"
	"strconv"
)

// Format returns a size as text, rounded down, with one digit after the point unless it is
// 0: "700 B", "19.5 GiB", "20 GiB". Because it rounds down, a free size just below a
// requirement never looks equal to it.
func Format[T int | int64 | uint64](n T) string {
	v, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1024 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return strconv.FormatFloat(math.Floor(v*10)/10, 'f', -1, 64) + " " + units[0]
}
