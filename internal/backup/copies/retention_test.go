package copies_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/backup/copies"
)

// A tagger is a key.
type tagger string

func (k tagger) Tag(name string) string {
	mac := hmac.New(sha256.New, []byte(k))
	mac.Write([]byte(name))
	return hex.EncodeToString(mac.Sum(nil)[:10])
}

const ours tagger = "ours"

// taggedName returns a name of host cp1 with a tag.
func taggedName(day int, by tagger) copies.Name { return copyName("cp1", day).WithTag(by) }

func TestWithTag_IsVerifiedOnlyBySameKey(t *testing.T) {
	n := taggedName(20, ours)
	got, ok := copies.ParseName(n.String())
	if !ok || got != n || !got.IsVerified(ours) || got.IsVerified(tagger("theirs")) {
		t.Errorf("%s is read as %+v, %t", n, got, ok)
	}
	for what, change := range map[string]func(*copies.Name){
		"another revision": func(n *copies.Name) { n.Revision = 1 << 62 },
		"another time":     func(n *copies.Name) { n.Taken = n.Taken.Add(time.Hour) },
		"another host":     func(n *copies.Name) { n.Host = "cp2" },
		"another cluster":  func(n *copies.Name) { n.ID = "ba9876543210" },
		"no tag":           func(n *copies.Name) { n.Tag = "" },
	} {
		other := n
		if change(&other); other.IsVerified(ours) {
			t.Errorf("%s: %s is verified", what, other)
		}
	}
	// Another spelling would be another file that counts.
	for _, alias := range []string{strings.Replace(n.String(), "_4720_", "_04720_", 1), strings.ToUpper(n.String())} {
		if got, ok := copies.ParseName(alias); ok {
			t.Errorf("%s is read as %+v", alias, got)
		}
	}
}

// Files that another user has put on a target, with any name, do not cause the removal of
// real copies. A wrong clock does not either.
func TestSendCopy_CountsOnlyVerifiedCopies(t *testing.T) {
	planted := func(day int) copies.Name {
		n := copyName("cp1", day)
		n.Revision = 1<<62 + int64(day)
		return n
	}
	forged := planted(9)
	forged.Tag = tagger("theirs").Tag("x")
	type file struct {
		name copies.Name
		age  time.Duration // by the target's clock
	}
	for _, tc := range []struct {
		name  string
		there []file
		gone  []copies.Name
		told  string
	}{
		{"nothing is beyond the number", []file{{taggedName(1, ours), time.Hour}}, nil, ""},
		{
			"the oldest goes",
			[]file{{taggedName(1, ours), 2 * time.Hour}, {taggedName(2, ours), time.Hour}},
			[]copies.Name{taggedName(1, ours)},
			"",
		},
		{
			"planted names do not count",
			[]file{{taggedName(1, ours), time.Hour}, {planted(1), time.Minute}, {planted(2), time.Minute}, {forged, time.Minute}},
			nil, "",
		},
		{
			"a planted name that is older goes",
			[]file{{taggedName(1, ours), time.Hour}, {planted(1), 2 * time.Hour}},
			[]copies.Name{planted(1)},
			"",
		},
		{
			"names from before there were tags go when enough have some",
			[]file{{copyName("cp1", 1), 3 * time.Hour}, {taggedName(2, ours), time.Hour}},
			[]copies.Name{copyName("cp1", 1)},
			"",
		},
		{"and stay until then", []file{{copyName("cp1", 1), 3 * time.Hour}, {copyName("cp1", 2), 2 * time.Hour}}, nil, ""},
		{
			"an old name that was written again is told",
			[]file{{taggedName(1, ours), time.Minute}, {taggedName(2, ours), time.Hour}},
			nil, taggedName(1, ours).String(),
		},
		{"another host's stays", []file{{copyName("cp2", 1).WithTag(ours), 3 * time.Hour}, {taggedName(2, ours), time.Hour}}, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, now := t.TempDir(), time.Now()
			d, err := copies.OpenDirectory(dir)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{taggedName(10, ours).String()}
			for _, f := range tc.there {
				at := filepath.Join(dir, f.name.String())
				if err := os.WriteFile(at, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(at, now.Add(-f.age), now.Add(-f.age)); err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(tc.gone, f.name) {
					want = append(want, f.name.String())
				}
			}
			sent, err := copies.SendCopy(t.Context(), d, taggedName(10, ours), ours, 2, writeContent(nil))
			if err != nil || (sent.Unremoved != nil) != (tc.told != "") || tc.told != "" && !strings.Contains(sent.Unremoved.Error(), tc.told) {
				t.Errorf("%+v, %v, want %q", sent, err, tc.told)
			}
			slices.Sort(want)
			if d := cmp.Diff(want, strings.Fields(listFiles(t, dir))); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
		})
	}
}

// Each target returns the time at which a file was written.
func TestList_ReturnsModificationTimes(t *testing.T) {
	for kind, open := range newTargets(t) {
		t.Run(kind, func(t *testing.T) {
			to, _ := open(t)
			if _, err := copies.SendCopy(t.Context(), to, taggedName(1, ours), ours, 2, writeContent([]byte("one"))); err != nil {
				t.Fatal(err)
			}
			all, err := to.List(t.Context(), "")
			if err != nil || len(all) != 1 || time.Since(all[0].Modified).Abs() > time.Hour {
				t.Errorf("%+v, %v", all, err)
			}
		})
	}
}
