//go:build linux

package etcd

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/op"
)

// dbPage is the page size of the real databases.
const dbPage = 4096

// TestAppliedTo_ReadsLastEntryAndReportsDamage checks that the last applied entry is read from real databases, and that
// damage is reported.
func TestAppliedTo_ReadsLastEntryAndReportsDamage(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		change       func(raw []byte) []byte
		damaged      string
	}{
		{"as it is", "the last entry that is in it", func(raw []byte) []byte { return raw }, ""},
		{"one beginning", "the other one is of the transaction before, and whole", func(raw []byte) []byte {
			raw[dbPage*(latest(raw)^1)+databasePageHead+20] ^= 1
			return raw
		}, ""},
		{"room beyond", "it grows by more than it needs", func(raw []byte) []byte { return append(raw, make([]byte, 10*dbPage)...) }, ""},
		{"no beginning", "nothing says where it begins", func(raw []byte) []byte {
			raw[databasePageHead+20] ^= 1
			raw[dbPage+databasePageHead+20] ^= 1
			return raw
		}, "does not start with"},
		{"nothing", "it was cut off at once", func([]byte) []byte { return nil }, "does not start with"},
		{"cut off", "the page that all begins at is not there", func(raw []byte) []byte { return raw[:2*dbPage] }, "it ends before page"},
		{
			"cut off at its last page", "how far it goes can be read, and something of it is not there",
			func(raw []byte) []byte { return raw[:pagesOf(raw)*dbPage-1] }, "it ends before page",
		},
		{"no more pages than that", "they are all there", func(raw []byte) []byte { return raw[:pagesOf(raw)*dbPage] }, ""},
		{"a page that it does not have", "it was never written", func(raw []byte) []byte { return claims(raw, rootOf(raw)) }, "cannot be read"},
		{"more pages than a disk has", "nothing is that large", func(raw []byte) []byte { return claims(raw, 1<<50) }, "is not possible"},
		{"another page", "it says that it is another", func(raw []byte) []byte {
			raw[rootOf(raw)*dbPage] ^= 1
			return raw
		}, "cannot be read"},
		{"what is on a page", "it would be beyond its end", func(raw []byte) []byte {
			raw[rootOf(raw)*dbPage+databasePageHead+7] = 0xff
			return raw
		}, "cannot be read"},
		{"a page of nothing", "it is neither of the two", func(raw []byte) []byte {
			raw[rootOf(raw)*dbPage+8] = 16
			return raw
		}, "cannot be read"},
		{
			"another database", "none of etcd's",
			func(raw []byte) []byte { return bytes.ReplaceAll(raw, []byte("meta"), []byte("beta")) }, "its last log entry is not recorded",
		},
	} {
		for _, version := range []string{"3.6.8", "3.7.0"} {
			t.Run(tc.name+" "+version, func(t *testing.T) {
				data := t.TempDir()
				if err := os.MkdirAll(filepath.Dir(databaseOf(data)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(databaseOf(data), tc.change(readMemberData(t, version)), 0o600); err != nil {
					t.Fatal(err)
				}
				to, damaged, err := appliedTo(data)
				if err != nil || (damaged == "") != (tc.damaged == "") || !strings.Contains(damaged, tc.damaged) {
					t.Errorf("%s: %q, %v", tc.reason, damaged, err)
				}
				if (to == (op.EtcdReach{Term: 2, Index: 13})) != (tc.damaged == "") {
					t.Errorf("%s: up to %+v", tc.reason, to)
				}
			})
		}
	}
}

// latest returns the page of the latest transaction, which is one of the first two.
func latest(raw []byte) int {
	tx := func(page int) uint64 { return binary.LittleEndian.Uint64(raw[page*dbPage+databasePageHead+48:]) }
	if tx(1) > tx(0) {
		return 1
	}
	return 0
}

func rootOf(raw []byte) int {
	return int(binary.LittleEndian.Uint64(raw[latest(raw)*dbPage+databasePageHead+16:]))
}

func pagesOf(raw []byte) int {
	return int(binary.LittleEndian.Uint64(raw[latest(raw)*dbPage+databasePageHead+40:]))
}

// claims changes the number of pages in the header of a database.
func claims(raw []byte, pages int) []byte {
	meta := raw[latest(raw)*dbPage+databasePageHead:]
	binary.LittleEndian.PutUint64(meta[40:], uint64(pages))
	sum := fnv.New64a()
	_, _ = sum.Write(meta[:databaseMetaBytes]) // it never fails
	binary.LittleEndian.PutUint64(meta[databaseMetaBytes:], sum.Sum64())
	return raw
}

// FuzzAppliedTo reads whatever there is, and ends.
func FuzzAppliedTo(f *testing.F) {
	f.Add(uint16(0), byte(1), uint16(dbPage), byte(2))
	f.Fuzz(func(t *testing.T, at uint16, what byte, also uint16, and byte) {
		raw := readMemberData(t, "3.7.0")
		raw[int(at)%len(raw)] ^= what
		raw[int(also)%len(raw)] ^= and
		d, err := openDB(bytes.NewReader(raw))
		if err == nil {
			_, err = d.lastApplied()
		}
		if err != nil && err.Error() == "" {
			t.Error("it does not say why")
		}
	})
}
