package diag

import (
	"cmp"
	"slices"
	"strings"
)

// NearestWords returns the known words that word may be a misspelling of, the nearest first, at
// most three: words that differ only in case or punctuation, or in about a third of their
// letters.
func NearestWords(word string, known []string) []string {
	type candidate struct {
		word     string
		distance int
	}
	plain := plainWord(word)
	var found []candidate
	for _, k := range known {
		other := plainWord(k)
		d := editDistance(plain, other)
		if d <= max(len(plain), len(other))/3 {
			found = append(found, candidate{k, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(a.distance-b.distance, strings.Compare(a.word, b.word))
	})
	out := []string{}
	for _, c := range found {
		if len(out) < 3 && c.distance <= found[0].distance+1 {
			out = append(out, c.word)
		}
	}
	return out
}

// DidYouMean returns a hint with the words near to word, or "" if there are none.
func DidYouMean(word string, known []string) string {
	near := NearestWords(word, known)
	if len(near) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}

func plainWord(s string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "", " ", "").Replace(strings.ToLower(s))
}

// editDistance counts the letters to insert, remove, change or swap with their
// neighbour (optimal string alignment). Words beyond 64 letters are far.
func editDistance(a, b string) int {
	const far = 1 << 10
	if len(a) > 64 || len(b) > 64 {
		return far
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
