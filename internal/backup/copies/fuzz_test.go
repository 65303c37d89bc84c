package copies_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/backup/copies"
)

// FuzzAmong reads a listing from an attacker, one name a line: each copy has one
// spelling, is in the same directory, and is verified only with its key.
func FuzzAmong(f *testing.F) {
	f.Add("notes.txt\n" + copyName("cp1", 1).String() + "\n" + taggedName(2, ours).String())
	f.Add(taggedName(3, "theirs").String() + "\n." + taggedName(3, ours).String() + ".part")
	f.Add("prod_0123456789ab_cp1_20261120-180007_9223372036854775808.tar.age\nprod_0123456789ab_.._20261120-180007_1.tar.age")
	known := []string{taggedName(2, ours).String()}
	f.Fuzz(func(t *testing.T, listing string) {
		var files []copies.File
		for line := range strings.SplitSeq(listing, "\n") {
			files = append(files, copies.File{Name: line, Bytes: int64(len(line))})
		}
		all := copies.SelectCopies(files, func(copies.Name) bool { return true })
		for _, c := range all {
			if c.Name.String() != c.File.Name || filepath.Base(c.File.Name) != c.File.Name {
				t.Errorf("%q is read as %q", c.File.Name, c.Name)
			}
			if c.Name.IsVerified(ours) && !slices.Contains(known, c.File.Name) {
				t.Errorf("%q is verified", c.File.Name)
			}
		}
		if !slices.IsSortedFunc(all, copies.CompareNewestFirst) {
			t.Errorf("not in order: %v", all)
		}
	})
}
